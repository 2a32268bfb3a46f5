"""Where the SDK sends to, and that its key never prints."""

from __future__ import annotations

import pytest

from ebbtide.configuration import DEFAULT_URL, read_configuration

ENVIRON = {"EBBTIDE_URL": "http://from.environment/", "EBBTIDE_API_KEY": "from-environment"}


@pytest.mark.parametrize(
    ("given", "environ", "found"),
    [
        ((None, None), {}, (DEFAULT_URL, "")),
        ((None, None), ENVIRON, ("http://from.environment", "from-environment")),
        (("http://given/", None), ENVIRON, ("http://given", "from-environment")),
        (("http://given", "given"), ENVIRON, ("http://given", "given")),
        (("", ""), ENVIRON, ("http://from.environment", "from-environment")),
    ],
)
def test_what_is_passed_wins_over_the_environment_and_that_over_the_default(
    given: tuple[str | None, str | None], environ: dict[str, str], found: tuple[str, str]
) -> None:
    read = read_configuration(*given, environ)
    assert (read.url, read.api_key) == found


def test_the_key_does_not_print() -> None:
    assert "from-environment" not in repr(read_configuration(environ=ENVIRON))
