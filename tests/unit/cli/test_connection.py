"""URL and key of a command: options, then environment, then this machine's platform; mistakes are explained."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ebbtide_platform.cli.connection import add_connection_options, configuration_of, connect, connect_client
from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("EBBTIDE_URL", raising=False)
    monkeypatch.delenv("EBBTIDE_API_KEY", raising=False)
    own = Settings(data_dir=tmp_path, port=9999)
    own.run_dir.mkdir()
    (own.run_dir / "acme.key").write_text("key-of-acme\n", "ascii")
    return own


def _parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection_options(parser)
    return parser.parse_args(words)


def test_a_tenant_of_this_machine_needs_its_name_alone(settings: Settings) -> None:
    found = configuration_of(_parsed("--tenant", "acme"), settings)
    assert (found.url, found.api_key) == ("http://127.0.0.1:9999", "key-of-acme")


def test_options_win_over_the_environment(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EBBTIDE_URL", "http://from.environment")
    monkeypatch.setenv("EBBTIDE_API_KEY", "from-environment")
    found = configuration_of(_parsed(), settings)
    assert (found.url, found.api_key) == ("http://from.environment", "from-environment")
    (tmp_path / "file.key").write_text(" from-file \n", "ascii")
    found = configuration_of(_parsed("--url", "http://given", "--api-key-file", str(tmp_path / "file.key")), settings)
    assert (found.url, found.api_key) == ("http://given", "from-file")


def test_without_any_key_the_ways_to_give_one_are_named(settings: Settings) -> None:
    with pytest.raises(Misconfigured) as caught:
        configuration_of(_parsed(), settings)
    assert "EBBTIDE_API_KEY" in caught.value.diagnostics()
    assert "--tenant" in caught.value.diagnostics()


@pytest.mark.parametrize("name", ["nobody", "../acme", "acm\udce9"])
def test_a_tenant_without_a_key_file_is_explained(settings: Settings, name: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        configuration_of(_parsed("--tenant", name), settings)
    assert "ebbtide key create" in caught.value.diagnostics()


def test_a_key_file_of_something_else_is_explained_and_not_shown(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "picture.key").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(Misconfigured) as caught:
        configuration_of(_parsed("--api-key-file", str(tmp_path / "picture.key")), settings)
    assert "PNG" not in caught.value.diagnostics()


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://127.0.0.1:notaport", ""])
def test_a_url_that_is_none_is_explained(settings: Settings, url: str) -> None:
    arguments = _parsed("--tenant", "acme", "--url", url)
    if url == "":
        assert configuration_of(arguments, settings).url == settings.api_url
        return
    for connecting in (connect, connect_client):
        with pytest.raises(Misconfigured, match="http://"):
            connecting(arguments, settings)


@pytest.mark.parametrize("key", ["ключ", "two\nlines", "a\tb"])
def test_a_key_that_no_header_can_carry_is_explained_and_not_shown(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("EBBTIDE_API_KEY", key)
    with pytest.raises(Misconfigured) as caught:
        connect(_parsed(), settings)
    assert key not in caught.value.diagnostics()


def test_a_connection_carries_the_key_and_closes(settings: Settings) -> None:
    with connect(_parsed("--tenant", "acme"), settings) as connection:
        assert connection.http.headers["authorization"] == "Bearer key-of-acme"
    assert connection.http.is_closed
