"""The deployment's standing policy: what its settings ask for, as a fact on the log when it is new."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ebbtide_platform.codec import decode, encode, headers
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord, OutRecord
from ebbtide_platform.settings import Settings
from ebbtide_platform.topics import FACTS
from ebbtide_schemas.records import FactRecord, Policy


def newest_policy(facts: Iterable[InRecord]) -> Policy | None:
    """The newest policy that is everybody's, None if there never was one."""
    newest = None
    for record in facts:
        try:
            fact = decode(record.value, FactRecord)
        except Poison:
            continue
        if fact.kind == "policy" and fact.tenant is None and fact.policy is not None:
            newest = fact.policy
    return newest


def wanted_policy(newest: Policy | None, settings: Settings) -> Policy | None:
    """The policy to publish so that the log says what the settings say; None if it says so already."""
    base = newest or Policy()
    wanted = msgspec.structs.replace(base, reward_window_s=settings.reward_window_s, idle_s=settings.idle_s)
    if newest is None:
        return wanted
    return None if wanted == newest else msgspec.structs.replace(wanted, version=newest.version + 1)


def policy_fact(policy: Policy, now_ms: int) -> OutRecord:
    """The fact that makes ``policy`` everybody's from here on."""
    fact = FactRecord(kind="policy", tenant=None, fact_ms=now_ms, policy=policy)
    event = f"{policy.name}-{policy.version}"
    stamped = headers(event=event, kind="fact", source="api", time_ms=now_ms, tenant=None)
    return OutRecord(FACTS.name, b"policy", encode(fact), tuple(stamped))
