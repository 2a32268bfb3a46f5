"""What a workload may ask of the key door, and what becomes of a call that is none."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from ebbtide_platform.errors import Denied, InvalidInput, TooLarge
from ebbtide_platform.keydoor.credentials import GRANTS, recognise, workload_token
from ebbtide_platform.keydoor.memory import MemoryKeyDoor
from ebbtide_platform.keydoor.protocol import ARGUMENTS, Answer, Call, Failure, Success, error_of, failure_of
from ebbtide_platform.keydoor.server import answer
from ebbtide_platform.ports import KeyDoor, KeyScope, Workload
from ebbtide_schemas.records import SealClass

SECRET = bytes(32)


def _ask(workload: Workload, name: str, *arguments: Any, door: KeyDoor | None = None) -> Answer:
    frame = msgspec.msgpack.encode(Call(name, msgspec.Raw(msgspec.msgpack.encode(arguments))))
    return answer(door or MemoryKeyDoor("acme"), workload, frame)


def _code(reply: Answer) -> str:
    return reply.code if isinstance(reply, Failure) else "ok"


def test_every_call_of_the_door_is_in_the_protocol_and_granted_to_somebody() -> None:
    calls = {name for name in vars(KeyDoor) if not name.startswith("_")}
    assert set(ARGUMENTS) == calls == GRANTS["admin"].calls
    assert set(GRANTS) == set(get_args(Workload))


@pytest.mark.parametrize("workload", ["redact", "settle"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("authenticate", ("ebb_",)),
        ("identity_key", ("acme",)),
        ("subject_refs", ("acme", ["ines"])),
        ("destroy_subject", ("acme", "ines")),
        ("create_tenant", ("globex",)),
        ("create_api_key", ("acme", "ci", ["read"])),
    ],
)
def test_a_processor_may_have_content_keys_and_nothing_else(workload: Workload, name: str, arguments: Any) -> None:
    assert _code(_ask(workload, name, *arguments)) == "denied"


@pytest.mark.parametrize("name", ["create_tenant", "create_api_key", "api_keys", "revoke_api_key"])
def test_the_api_makes_no_tenants_and_no_keys(name: str) -> None:
    assert _code(_ask("api", name, "acme")) == "denied"


@pytest.mark.parametrize(
    ("workload", "seal_class", "code"),
    [
        ("redact", "raw", "ok"),
        ("redact", "redacted", "denied"),
        ("settle", "raw", "ok"),
        ("settle", "redacted", "ok"),
        ("admin", "redacted", "ok"),
        ("admin", "quarantine", "invalid"),
    ],
)
def test_a_workload_has_keys_of_its_classes(workload: Workload, seal_class: SealClass, code: str) -> None:
    scopes = [KeyScope("acme", None, (), "raw"), KeyScope("acme", None, (), seal_class)]
    assert _code(_ask(workload, "content_keys", scopes, True)) == code


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("close", ()),
        ("__class__", ()),
        ("_tenant", ("acme",)),
        ("identity_key", ()),
        ("identity_key", (7,)),
        ("fence", (1,)),
        ("content_keys", ([{"tenant": "acme"}], True)),
    ],
)
def test_a_call_that_is_none_is_denied(name: str, arguments: Any) -> None:
    assert _code(_ask("admin", name, *arguments)) == "denied"


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa4name\xa5fence"])
def test_bytes_that_are_no_call_are_denied(frame: bytes) -> None:
    assert _code(answer(MemoryKeyDoor(), "admin", frame)) == "denied"


def test_a_bug_in_the_door_is_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenDoor(MemoryKeyDoor):
        def identity_key(self, tenant: str) -> bytes:
            raise RuntimeError("key material")

    reply = _ask("admin", "identity_key", "acme", door=BrokenDoor())
    assert _code(reply) == "unavailable"
    assert "key material" not in caplog.text + str(reply)
    assert "RuntimeError" in caplog.text


def test_the_result_travels_as_it_is() -> None:
    reply = _ask("admin", "tenants")
    assert isinstance(reply, Success)
    assert msgspec.msgpack.decode(reply.value) == ["acme"]


@pytest.mark.parametrize(
    "error", [InvalidInput("day", "must be a day"), TooLarge("a", "b"), Denied("no", try_this="x")]
)
def test_an_error_is_the_same_on_the_other_side(error: Any) -> None:
    told = error_of(failure_of(error))
    assert (type(told), vars(told)) == (type(error), vars(error))


def test_a_token_is_its_workloads_only() -> None:
    tokens = {workload_token(SECRET, workload): workload for workload in GRANTS}
    assert {recognise(tokens, token) for token in tokens} == set(GRANTS)
    redact = workload_token(SECRET, "redact")
    for wrong in ("", redact[:-1], redact.replace("redact", "admin"), workload_token(b"\1" * 32, "admin"), "\udcff"):
        with pytest.raises(Denied):
            recognise(tokens, wrong)
