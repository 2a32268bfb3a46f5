"""``POST /v1/consents`` and ``POST /v1/erasures``: acts of governance about one person, written as facts.

An erasure destroys first and writes the fact afterwards: if it is interrupted, asking again finds the same
destruction and writes the same fact.
"""

# No postponed annotations here: FastAPI reads those of its routes, and could not see the names around them.
import base64
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from ebbtide.verification import Receipt
from ebbtide_platform import codec
from ebbtide_platform.doors.auth import Authenticator, check_tenant_named
from ebbtide_platform.doors.bodies import Budget, read_body, read_form
from ebbtide_platform.doors.outbox import Entry, Outbox
from ebbtide_platform.errors import Misconfigured, NotFound, SubjectErased
from ebbtide_platform.ports import Erased, KeyDoor, OutRecord, Principal
from ebbtide_platform.sealing.identity import random_id, uuid8
from ebbtide_platform.topics import FACTS
from ebbtide_schemas.events import Identifier, Label
from ebbtide_schemas.records import FactRecord


class ConsentForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person wills; without ``purpose`` it is about every purpose. ``tenant`` may only repeat the key's."""

    subject: Identifier
    state: Literal["given", "withdrawn"]
    purpose: Label | None = None
    tenant: Label | None = None


class ErasureForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom to forget. ``tenant`` may only repeat the key's."""

    subject: Identifier
    tenant: Label | None = None


class ReceiptSigner:
    """Signs receipts with the Ed25519 key in ``path``, which is made (mode 0600) if it is not there.

    Raises:
        Misconfigured: the file holds no such key.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            _create_key(path)
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except ValueError:
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise Misconfigured("the receipt key is no Ed25519 key", try_this=f"move {path} away: a new one is made")
        self._key = key
        self.public_key = base64.b64encode(key.public_key().public_bytes_raw()).decode()

    def sign(self, receipt: Receipt) -> Receipt:
        """The receipt with this key's name and signature."""
        unsigned = msgspec.structs.replace(receipt, public_key=self.public_key, signature="")
        signature = base64.b64encode(self._key.sign(unsigned.signed_bytes())).decode()
        return msgspec.structs.replace(unsigned, signature=signature)


class ActDoor:
    """Carries out acts for one tenant at a time. Blocks: call it in a thread."""

    def __init__(self, door: KeyDoor, outbox: Outbox, signer: ReceiptSigner, now_ms: Callable[[], int]) -> None:
        self._door = door
        self._outbox = outbox
        self._signer = signer
        self._now_ms = now_ms

    def consent(self, principal: Principal, form: ConsentForm) -> str:
        """Write down a person's will; returns the id of the fact.

        Raises:
            SubjectErased: the person has been erased.
            Overloaded, Unavailable: nothing was written.
        """
        check_tenant_named(principal, form.tenant)
        subject = self._door.subject_refs(principal.tenant, [form.subject])[0]
        if isinstance(subject, Erased):
            raise SubjectErased("subject", "has been erased")
        fact = FactRecord(
            kind="consent",
            tenant=principal.tenant,
            fact_ms=self._now_ms(),
            subject=subject,
            purpose=form.purpose,
            state=form.state,
        )
        event = random_id()
        self._write(event, subject, fact)
        return event

    def erase(self, principal: Principal, form: ErasureForm) -> Receipt:
        """Destroy a person's keys and say so on the log; asked again, it gives the same two instants.

        Raises:
            NotFound: nothing was ever recorded about this person.
            Overloaded, Unavailable: ask again, it may be done in part.
        """
        check_tenant_named(principal, form.tenant)
        tenant, requested_ms = principal.tenant, self._now_ms()
        self._outbox.check_room()
        destroyed = self._door.destroy_subject(tenant, form.subject)
        if destroyed is None:
            raise NotFound("nothing was recorded about this subject", try_this="is it written as in the events?")
        request = uuid8(self._door.identity_key(tenant), "erasure", destroyed.subject)
        fact = FactRecord(kind="erasure", tenant=tenant, fact_ms=destroyed.unreadable_ms, subject=destroyed.subject)
        self._write(request, destroyed.subject, fact)
        return self._signer.sign(
            Receipt(
                kind="ebbtide.erasure-receipt/1",
                request=request,
                tenant=tenant,
                requested_ms=min(requested_ms, destroyed.unreadable_ms),
                unreadable_ms=destroyed.unreadable_ms,
                irrecoverable_ms=destroyed.irrecoverable_ms,
                public_key="",
                signature="",
            )
        )

    def _write(self, event: str, subject: str, fact: FactRecord) -> None:
        headers = codec.headers(event=event, kind="fact", source="door", time_ms=fact.fact_ms, tenant=fact.tenant)
        record = OutRecord(FACTS.name, subject.encode(), codec.encode(fact), tuple(headers))
        self._outbox.append([Entry(event, fact.kind, (record,))])


def acts_router(acts: ActDoor, budget: Budget, authenticator: Authenticator) -> APIRouter:
    """The routes of acts, for keys with the scope ``govern``."""
    router = APIRouter(prefix="/v1", tags=["acts"])
    governing = Annotated[Principal, Depends(authenticator.require("govern"))]

    @router.post("/consents", status_code=202)
    async def post_consent(request: Request, principal: governing) -> Response:
        """Record that a person gives or withdraws consent: {subject, state, purpose?}."""
        with budget.share() as share:
            form = read_form(await read_body(request, share), ConsentForm)
        fact = await run_in_threadpool(acts.consent, principal, form)
        return Response(msgspec.json.encode({"fact": fact, "state": form.state}), 202, media_type="application/json")

    @router.post("/erasures")
    async def post_erasure(request: Request, principal: governing) -> Response:
        """Destroy the keys of a person: {subject}. Answers with a signed receipt."""
        with budget.share() as share:
            form = read_form(await read_body(request, share), ErasureForm)
        receipt = await run_in_threadpool(acts.erase, principal, form)
        return Response(msgspec.json.encode(receipt), media_type="application/json")

    return router


def _create_key(path: Path) -> None:
    """Write a new key whole or not at all; of two processes that do so at once, one wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    number = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
