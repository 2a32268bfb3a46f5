"""An error of the SDK says what happened, where, by which rule, and what to try."""

from __future__ import annotations

import pytest

from ebbtide.errors import EbbtideSDKError, RequestRefused, ServerUnreachable


def test_a_refusal_names_field_rule_and_remedy() -> None:
    body = b'{"error": {"code": "invalid", "field": "subject", "rule": "must not be empty", "try": "name a person"}}'
    error = RequestRefused.of(422, body)
    assert str(error) == "refused (422 invalid): subject: must not be empty; try: name a person"
    assert (error.status, error.code, error.field, error.rule) == (422, "invalid", "subject", "must not be empty")


@pytest.mark.parametrize("body", [b"", b"<html>502</html>", b"[]", b'{"error": "no"}', b'{"detail": "no"}'])
def test_an_answer_that_explains_nothing_is_still_an_error(body: bytes) -> None:
    assert str(RequestRefused.of(502, body)) == "refused (502 error): the answer has no explanation"


def test_a_server_that_is_away_names_what_to_start() -> None:
    error = ServerUnreachable("ConnectError")
    assert isinstance(error, EbbtideSDKError)
    assert "ebbtide up" in str(error)
    assert error.kind == "ConnectError"
