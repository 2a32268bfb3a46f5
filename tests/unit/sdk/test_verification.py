"""A receipt is checked offline, and any change of it is seen."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import ebbtide
from support.receipts import signed_receipt


def test_a_receipt_is_checked_in_every_form_it_comes_in(tmp_path: Path) -> None:
    receipt = signed_receipt()
    text = msgspec.json.encode(receipt)
    (tmp_path / "receipt.json").write_bytes(text)
    forms = [receipt, msgspec.to_builtins(receipt), text, tmp_path / "receipt.json", str(tmp_path / "receipt.json")]
    found = [ebbtide.verify(form) for form in forms]
    assert all(result == found[0] for result in found)
    assert found[0].ok
    assert found[0].fingerprint == hashlib.sha256(base64.b64decode(receipt.public_key)).hexdigest()


@pytest.mark.parametrize("member", ["request", "tenant", "requested_ms", "unreadable_ms", "irrecoverable_ms"])
def test_a_change_of_any_member_breaks_the_signature(member: str) -> None:
    receipt = signed_receipt()
    value = getattr(receipt, member)
    changed = msgspec.structs.replace(receipt, **{member: value + 1 if isinstance(value, int) else f"{value}x"})
    result = ebbtide.verify(changed)
    assert not result.ok
    assert result.checks["signature"] is False


def test_instants_out_of_order_are_not_believed_even_when_signed() -> None:
    result = ebbtide.verify(signed_receipt(irrecoverable_ms=5))
    assert result.checks == {"signature": True, "order of instants": False}
    assert not result.ok


def test_a_receipt_of_another_key_is_not_the_expected_one() -> None:
    expected = signed_receipt().public_key
    result = ebbtide.verify(signed_receipt(Ed25519PrivateKey.generate()), public_key=expected)
    assert result.checks == {"signature": True, "order of instants": True, "expected key": False}
    assert not result.ok


@pytest.mark.parametrize("signature", ["", "AAAA", "not base64!", "ü"])
def test_what_is_no_signature_does_not_verify(signature: str) -> None:
    assert not ebbtide.verify(msgspec.structs.replace(signed_receipt(), signature=signature)).ok


@pytest.mark.parametrize("key", ["", "AAAA", "not base64!", "ü"])
def test_what_is_no_key_does_not_verify(key: str) -> None:
    assert not ebbtide.verify(msgspec.structs.replace(signed_receipt(), public_key=key)).ok
    assert not ebbtide.verify(signed_receipt(), public_key=key).ok


@pytest.mark.parametrize("document", [b"{", b"[]", b'{"kind": "something/1"}', {"kind": "something/1"}])
def test_what_is_no_receipt_is_refused_with_the_reason(document: bytes | dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not an Ebbtide document"):
        ebbtide.verify(document)


def test_without_cryptography_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(ImportError, match="pip install cryptography"):
        ebbtide.verify(signed_receipt())
