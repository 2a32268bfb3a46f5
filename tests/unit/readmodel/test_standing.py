"""The standing policy is published when the settings say something new, and only then."""

from __future__ import annotations

from ebbtide_governance.standing import newest_policy, policy_fact, wanted_policy
from ebbtide_platform import topics
from ebbtide_platform.adapters.log_memory import MemoryLog
from ebbtide_platform.settings import Settings
from ebbtide_schemas.records import FactRecord, Policy
from support.governed_log import put


def _log(*facts: FactRecord) -> MemoryLog:
    log = MemoryLog()
    log.create_topics(topics.SHARED)
    for fact in facts:
        put(log, topics.FACTS, "k", fact)
    return log


def test_a_new_deployment_publishes_what_its_settings_say() -> None:
    wanted = wanted_policy(newest_policy(_log().records(topics.FACTS)), Settings(reward_window_s=5, idle_s=2))
    assert wanted == Policy(reward_window_s=5, idle_s=2, version=1)


def test_a_restart_with_the_same_settings_publishes_nothing() -> None:
    log, settings = _log(), Settings(reward_window_s=5)
    wanted = wanted_policy(None, settings)
    assert wanted is not None
    log.write([policy_fact(wanted, 1)])
    assert newest_policy(log.records(topics.FACTS)) == wanted
    assert wanted_policy(newest_policy(log.records(topics.FACTS)), settings) is None


def test_a_changed_setting_makes_the_next_version_and_keeps_the_other_rules() -> None:
    standing = Policy(version=3, reward_window_s=5, required_rewards=("resolved",))
    wanted = wanted_policy(standing, Settings(reward_window_s=6, idle_s=standing.idle_s))
    assert wanted == Policy(version=4, reward_window_s=6, required_rewards=("resolved",))


def test_a_tenants_own_policy_and_other_facts_are_not_everybodys() -> None:
    own = FactRecord(kind="policy", tenant="acme", fact_ms=1, policy=Policy(version=9))
    consent = FactRecord(kind="consent", tenant="acme", fact_ms=1, state="given")
    log = _log(own, consent)
    put(log, topics.FACTS, "k", policy_junk())
    assert newest_policy(log.records(topics.FACTS)) is None


def policy_junk() -> FactRecord:
    """A policy fact without a policy."""
    return FactRecord(kind="policy", tenant=None, fact_ms=1)
