"""Ids on the log: the same for a retry, another for anything else, and the ones in the conformance vectors."""

from __future__ import annotations

import json
import uuid
from importlib import resources
from typing import Any

import pytest

from ebbtide_platform.sealing import identity

KEY = bytes(32)
VECTORS: dict[str, Any] = json.loads(
    resources.files("ebbtide_schemas").joinpath("vectors/identity.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: "/".join(vector["parts"]) or "empty")
def test_an_id_is_the_one_of_its_vector(vector: dict[str, Any]) -> None:
    assert identity.uuid8(bytes.fromhex(VECTORS["key"]), *vector["parts"]) == vector["id"]


@pytest.mark.parametrize("vector", VECTORS["samples"], ids=lambda vector: vector["id"])
def test_a_sample_id_is_the_one_of_its_vector(vector: dict[str, str]) -> None:
    assert identity.sample_id(vector["trajectory"], vector["first_step"]) == vector["id"]


def test_an_id_is_a_uuid_of_version_8() -> None:
    for text in (identity.event_id(KEY, "s-1"), identity.random_id(), identity.sample_id("t", "s")):
        assert uuid.UUID(text).version == 8
        assert uuid.UUID(text).variant == uuid.RFC_4122


def test_the_same_text_has_the_same_id_only_as_the_same_thing_under_the_same_key() -> None:
    kinds = (identity.event_id, identity.trajectory_id, identity.session_id, identity.group_id, identity.task_id)
    ids = [kind(key, "session-1") for kind in kinds for key in (KEY, b"\1" * 32)]
    assert len(set(ids)) == len(ids)
    assert ids[0] == identity.event_id(KEY, "session-1")


def test_the_alias_of_a_trajectory_is_its_id() -> None:
    assert identity.alias_id(KEY, "trajectory", "t-1") == identity.trajectory_id(KEY, "t-1")
    assert identity.alias_id(KEY, "step", "t-1") != identity.alias_id(KEY, "response", "t-1")


def test_parts_do_not_run_together() -> None:
    assert identity.uuid8(KEY, "ab", "c") != identity.uuid8(KEY, "a", "bc") != identity.uuid8(KEY, "a", "b", "c")


@pytest.mark.parametrize(
    "spelling",
    ["Ines.Varga@Example.org", " ines.varga@example.org ", "INES.VARGA@EXAMPLE.ORG", "ｉnes.varga@example.org"],
)
def test_spellings_of_one_identity_fall_together(spelling: str) -> None:
    assert identity.normal_identity(spelling) == "ines.varga@example.org"


@pytest.mark.parametrize("other", ["ines.varga+work@example.org", "ines.varga@example.com", "cust-420", "ínes"])
def test_identities_that_only_look_alike_stay_apart(other: str) -> None:
    assert identity.normal_identity(other) not in {"ines.varga@example.org", "cust-42", "ines"}
