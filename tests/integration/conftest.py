"""One running platform for a module of tests, and the command line beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebbtide.client import Client
from ebbtide.configuration import Configuration
from ebbtide_platform.cli.main import main
from support.running_platform import Platform, running_platform

TENANT = "acme"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A whole platform with the tenant ``acme`` and windows of seconds."""
    with running_platform(tmp_path_factory.mktemp("platform") / "data", TENANT) as running:
        yield running


@pytest.fixture
def client(platform: Platform) -> Iterator[Client]:
    """The SDK's client for ``acme``."""
    opened = Client(Configuration(platform.settings.api_url, platform.key(TENANT)))
    yield opened
    opened.close()


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def ebbtide_command(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Run ``ebbtide WORDS`` as a person beside this platform would."""
    for name, value in platform.settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*words: str | Path) -> Answer:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run
