"""What a process of the platform says when it fails unexpectedly."""

from __future__ import annotations

from ebbtide_platform.cli.run import describe


def _fail(text: str) -> None:
    try:
        int(text)
    except ValueError as error:
        raise RuntimeError(f"cannot read {text}") from error


def test_the_place_of_a_fault_is_told_and_its_message_is_not() -> None:
    try:
        _fail("ada@example.com")
    except RuntimeError as error:
        told = describe(error)
    assert "RuntimeError" in told
    assert "caused by\nValueError" in told
    assert "in _fail" in told
    assert "ada@example.com" not in told
