"""What single records say about the read model."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide_governance.projection import fold
from ebbtide_governance.tables.merging import Row, merge_all
from ebbtide_governance.tables.rows import DecisionRow, RewardRow, SampleRow, StepRow, Table, TrajectoryRow
from ebbtide_platform import topics
from ebbtide_platform.codec import encode
from ebbtide_platform.ports import InRecord
from ebbtide_schemas.records import ChunkRecord, LogRecord, SealedChunk, StepRecord, TickRecord, WithdrawalRecord
from support.governed_log import decision, findings, quarantined, reward, settled, step


def _read(record: LogRecord, topic: topics.Topic | str, offset: int = 0) -> InRecord:
    name = topic if isinstance(topic, str) else topic.name
    return InRecord(name, 0, offset, b"k", encode(record), timestamp_ms=7)


def _rows(table: type[Table], *records: InRecord) -> list[Row]:
    merged = merge_all(change for record in records for change in fold(record))
    return list(merged.get(table, {}).values())


@pytest.mark.parametrize(
    "value",
    [None, b"", b"\xff", b"null", encode(TickRecord(tick_ms=1)), b"\x81\xa4type\xa4step"],
    ids=["null", "empty", "junk", "json-null", "another-type", "half-a-step"],
)
def test_what_cannot_be_read_makes_no_rows(value: bytes | None) -> None:
    assert fold(InRecord(topics.STEPS.name, 0, 0, None, value)) == []


def test_a_record_on_a_topic_that_is_not_its_own_says_nothing() -> None:
    assert fold(_read(StepRecord(header=step("acme", "t", 0)), topics.REWARDS)) == []
    assert fold(_read(decision(settled("acme", "t"), "eligible"), topics.curated("acme"))) == []
    withdrawn = WithdrawalRecord(sample="s", tenant="acme", trajectory="t", revision=0, facts_offset=0, reasons=())
    assert fold(_read(withdrawn, "ebbtide.curated.NOT A TENANT.v1")) == []


def test_numbers_that_no_database_takes_make_no_rows() -> None:
    huge = msgspec.structs.replace(step("acme", "t", 0), received_ms=2**63)
    for header in (huge, step("acme", "nul\0", 0)):
        assert fold(_read(StepRecord(header=header), topics.STEPS)) == []


def test_a_chunk_is_no_step() -> None:
    chunk = SealedChunk(
        segment="s", tenant="acme", trajectory="t", subjects=(), seal_class="raw", first_event="e", nonce=b"", data=b""
    )
    assert fold(_read(ChunkRecord(tenant="acme", trajectory="t", sealed=chunk), topics.STEPS)) == []


def test_the_first_step_of_an_id_stands_when_another_content_comes_under_it() -> None:
    first = _read(StepRecord(header=step("acme", "t", 0, digest="first")), topics.STEPS, 1)
    second = _read(StepRecord(header=step("acme", "t", 0, digest="second")), topics.STEPS, 2)
    assert [row["digest"] for row in _rows(StepRow, second, first)] == ["first"]


def test_a_repeat_does_not_hide_what_the_first_look_found() -> None:
    header = step("acme", "t", 0)
    looks = [
        _read(findings(header, "PERSON"), topics.FINDINGS, 1),
        _read(findings(header, repeat=True), topics.FINDINGS, 2),
    ]
    (row,) = _rows(StepRow, *looks)
    assert (row["scanned"], row["findings"]) == (1, {"PERSON": 1})


def test_a_reward_is_parked_until_it_is_routed() -> None:
    seen = _read(reward("acme", "rw", "alias"), topics.REWARDS)
    routed = _read(reward("acme", "rw", "alias", "t"), topics.ROUTED)
    assert [row.get("routed_ms") for row in _rows(RewardRow, seen)] == [None]
    for order in ((seen, routed), (routed, seen)):
        (row,) = _rows(RewardRow, *order)
        assert (row["routed_ms"], row["trajectory"]) == (7, "t")


def test_the_newest_verdict_is_that_of_the_highest_revision_then_of_the_newest_facts() -> None:
    old = _read(decision(settled("acme", "t", 0), "rejected", "unrewarded", facts=9), topics.DECISIONS, 9)
    new = _read(decision(settled("acme", "t", 1), "eligible", facts=2), topics.DECISIONS, 2)
    later = _read(decision(settled("acme", "t", 1), "held", "hold", facts=3), topics.DECISIONS, 3)
    assert [row["verdict"] for row in _rows(TrajectoryRow, later, old, new)] == ["held"]
    assert len(_rows(DecisionRow, later, old, new)) == 3


def test_equal_ids_of_two_tenants_stay_two_things() -> None:
    records = [_read(StepRecord(header=step(tenant, "t", 0)), topics.STEPS) for tenant in ("acme", "globex")]
    assert sorted(row["tenant"] for row in _rows(TrajectoryRow, *records)) == ["acme", "globex"]


def test_a_sample_in_another_tenants_topic_is_filed_there_and_shows_its_own_name() -> None:
    withdrawn = WithdrawalRecord(sample="s", tenant="acme", trajectory="t", revision=0, facts_offset=0, reasons=())
    (row,) = _rows(SampleRow, _read(withdrawn, topics.curated("globex")))
    assert (row["tenant"], row["record_tenant"]) == ("globex", "acme")


def test_a_quarantined_record_nobody_owns_opens_no_trajectory() -> None:
    assert _rows(TrajectoryRow, _read(quarantined(None, None, 1), topics.QUARANTINE)) == []
