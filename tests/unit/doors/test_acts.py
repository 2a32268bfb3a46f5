"""Consents and erasures become facts; an erasure destroys, and gives a receipt that anybody can check."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbtide.verification import verify_document
from ebbtide_platform.doors.acts import ReceiptSigner
from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.topics import FACTS
from ebbtide_schemas.records import FactRecord
from support.atdp import step
from support.doors import NOW_MS, StandingDoors, standing_doors

SECRET = "Ann-Miller-4711"
RECEIPT_KEY = Path("keys") / "receipt.ed25519"


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[StandingDoors]:
    with standing_doors(tmp_path) as standing:
        yield standing


def _facts(doors: StandingDoors) -> list[FactRecord]:
    return [record for record in doors.records(FACTS) if isinstance(record, FactRecord)]


def _record(doors: StandingDoors, tenant: str = "acme") -> None:
    answer = doors.post("/v1/events", step(meta={"agent": "a", "subjects": ["u-1"]}), tenant)
    assert answer.status_code == 202


def test_a_consent_is_a_fact_about_a_reference_and_names_nobody(doors: StandingDoors) -> None:
    answer = doors.post("/v1/consents", {"subject": "u-1", "state": "withdrawn", "purpose": "training"})
    assert (answer.status_code, answer.json()["state"]) == (202, "withdrawn")
    (reference,) = doors.door.subject_refs("acme", ["u-1"])
    assert isinstance(reference, str)
    assert _facts(doors) == [
        FactRecord(
            kind="consent", tenant="acme", fact_ms=NOW_MS, subject=reference, purpose="training", state="withdrawn"
        )
    ]


def test_every_consent_counts_and_the_last_is_last(doors: StandingDoors) -> None:
    for state in ("given", "withdrawn", "given"):
        doors.post("/v1/consents", {"subject": "u-1", "state": state})
    assert [fact.state for fact in _facts(doors)] == ["given", "withdrawn", "given"]


def test_an_erasure_destroys_and_its_receipt_verifies_offline(doors: StandingDoors, tmp_path: Path) -> None:
    _record(doors)
    answer = doors.post("/v1/erasures", {"subject": "u-1"})
    assert answer.status_code == 200
    verified = verify_document(answer.content)
    assert verified.ok, verified.checks
    receipt = answer.json()
    assert (receipt["tenant"], receipt["requested_ms"]) == ("acme", NOW_MS)
    forged = json.dumps(receipt | {"irrecoverable_ms": receipt["irrecoverable_ms"] + 1}).encode()
    assert not verify_document(forged).ok
    (fact,) = _facts(doors)
    assert (fact.kind, fact.tenant) == ("erasure", "acme")
    again = doors.post("/v1/events", step(id="s-2", meta={"agent": "a", "subjects": ["u-1"]}))
    assert again.status_code == 410
    assert doors.post("/v1/consents", {"subject": "u-1", "state": "given"}).status_code == 410


def test_asking_twice_gives_the_same_instants_and_one_fact(doors: StandingDoors) -> None:
    _record(doors)
    first, second = (doors.post("/v1/erasures", {"subject": "u-1"}).json() for _ in range(2))
    assert first == second
    assert len(_facts(doors)) == 1


def test_an_erasure_that_was_interrupted_before_its_fact_is_completed_by_asking_again(doors: StandingDoors) -> None:
    _record(doors)
    doors.door.destroy_subject("acme", "u-1")
    assert doors.post("/v1/erasures", {"subject": "u-1"}).status_code == 200
    assert [fact.kind for fact in _facts(doors)] == ["erasure"]


def test_somebody_unknown_and_another_tenants_subject_are_not_found_alike(doors: StandingDoors) -> None:
    _record(doors, "globex")
    foreign, unknown = (doors.post("/v1/erasures", {"subject": name}) for name in ("u-1", "nobody"))
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.content == unknown.content
    assert _facts(doors) == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/consents", {"subject": "u-1"}, "state"),
        ("/v1/consents", {"subject": "u-1", "state": SECRET}, "state"),
        ("/v1/consents", {"subject": "u-1", "state": "given", SECRET: 1}, "$"),
        ("/v1/consents", {"subject": "u-1", "state": "given", "purpose": f"{SECRET} !"}, "purpose"),
        ("/v1/erasures", {"subject": ""}, "subject"),
        ("/v1/erasures", {"subject": [SECRET]}, "subject"),
        ("/v1/erasures", [SECRET], "$"),
        ("/v1/erasures", b'{"subject": "' + SECRET.encode(), "subject"),
        ("/v1/erasures", b'{"subject": "\xff"}', "$"),
        ("/v1/erasures", b'{"subject": "u-1", "subject": "u-2"}', "subject"),
    ],
)
def test_a_form_that_is_wrong_is_refused_by_field_and_never_repeated(
    doors: StandingDoors, path: str, body: Any, field: str
) -> None:
    answer = doors.post(path, body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert SECRET not in answer.text


def test_deep_and_large_forms_are_refused(doors: StandingDoors) -> None:
    for path in ("/v1/consents", "/v1/erasures"):
        assert doors.post(path, b'{"subject":' + b"[" * 30_000 + b"]" * 30_000 + b"}").status_code == 413
        assert doors.post(path, b" " * 100_000).status_code == 413


def test_naming_another_tenant_in_a_form_is_forbidden_and_does_nothing(doors: StandingDoors) -> None:
    _record(doors, "globex")
    for path, more in (("/v1/consents", {"state": "withdrawn"}), ("/v1/erasures", {})):
        assert doors.post(path, {"subject": "u-1", "tenant": "globex", **more}).status_code == 403
    assert _facts(doors) == []


def test_the_receipt_key_is_the_owners_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / RECEIPT_KEY
    first = ReceiptSigner(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ReceiptSigner(path).public_key == first.public_key
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_receipt_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "receipt.ed25519"
    path.write_text("not a key")
    with pytest.raises(Misconfigured):
        ReceiptSigner(path)
