"""Settings: one frozen value, the only reader of the environment, and no secret ever printed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ebbtide_platform.errors import Misconfigured
from ebbtide_platform.settings import Secret, read_settings


def test_a_secret_prints_as_stars_in_every_form() -> None:
    settings = read_settings({"EBBTIDE_WORKLOAD_TOKEN": "api.deadbeef"})
    for text in (repr(settings), str(settings), f"{settings.workload_token}", repr(Secret("api.deadbeef"))):
        assert "deadbeef" not in text
    assert settings.workload_token.reveal() == "api.deadbeef"


def test_the_environment_is_read_by_each_fields_type() -> None:
    found = read_settings({"EBBTIDE_PORT": "9001", "EBBTIDE_IDLE_S": "2.5", "EBBTIDE_DATA_DIR": "/srv/tide"})
    assert (found.port, found.idle_s, found.data_dir) == (9001, 2.5, Path("/srv/tide"))


def test_an_override_goes_before_the_environment_and_none_is_no_override() -> None:
    environment = {"EBBTIDE_HOST": "127.0.0.2"}
    assert read_settings(environment, host="127.0.0.3").host == "127.0.0.3"
    assert read_settings(environment, host=None).host == "127.0.0.2"


def test_what_cannot_be_read_is_named_and_not_repeated() -> None:
    with pytest.raises(Misconfigured, match="EBBTIDE_PORT is not a valid int") as caught:
        read_settings({"EBBTIDE_PORT": "Ines Varga"})
    assert "Varga" not in caught.value.diagnostics()


@pytest.mark.parametrize("name", ["reward_window_s", "idle_s"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 4e9], ids=["nan", "inf", "negative", "127 years"])
def test_a_window_that_no_policy_can_say_is_refused(name: str, value: float) -> None:
    with pytest.raises(Misconfigured, match="must be from 0 seconds to 100 years"):
        read_settings({}, **{name: value})


def test_settings_survive_the_way_to_a_child_process() -> None:
    settings = read_settings({}, port=9001, topic_prefix="t1.", partitions=2, workload_token=Secret("x.y"))
    again = read_settings(settings.environment())
    assert again.workload_token.reveal() == "x.y"
    assert dataclasses.replace(again, workload_token=settings.workload_token) == settings


def test_without_a_running_key_door_the_token_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no workload token"):
        read_settings({}, data_dir=tmp_path).token()
