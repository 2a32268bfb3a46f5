"""The settle stage over memory stores: revisions, rendered text, conflicts, and what survives a restart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ebbtide_platform.codec import encode
from ebbtide_platform.errors import Poison
from ebbtide_platform.ports import InRecord
from ebbtide_platform.topics import FINDINGS, TICKS, TRAJECTORIES
from ebbtide_schemas.records import SettledRecord, StepHeader, TickRecord
from ebbtide_streams.settle import SettleStage
from ebbtide_streams.settle.stage import LACKING_MS
from support.stages import WINDOW_MS, Pipeline

ADA = "Ada Lovelace"


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline()


def content(settled: SettledRecord) -> SettledRecord:
    return replace(settled, revision=0, supersedes=None, settled_ms=0)


def test_an_ended_and_rewarded_trajectory_settles_with_the_next_tick(pipeline: Pipeline) -> None:
    pipeline.step("a")
    pipeline.end("z", 1, "a")
    pipeline.reward("r")
    assert pipeline.settled == []
    pipeline.tick(20)
    (settled,) = pipeline.settled
    assert (settled.revision, settled.supersedes, settled.settled_ms, settled.steps) == (0, None, 20, 2)


def test_a_burst_makes_one_revision_and_a_quiet_tick_none(pipeline: Pipeline) -> None:
    pipeline.step("a")
    pipeline.end("z", 1, "a")
    for i in range(5):
        pipeline.reward(f"r{i}")
    for tick_ms in (20, 21, 22, 10 * WINDOW_MS):
        pipeline.tick(tick_ms)
    assert [len(settled.rewards) for settled in pipeline.settled] == [5]


def test_what_was_found_is_replaced_everywhere_in_the_trajectory(pipeline: Pipeline) -> None:
    says = [("user", f"I am {ADA}", ()), ("assistant", "Hello!", ())]
    later = [("user", "Bye", ()), ("assistant", f"Bye, {ADA}", ())]
    pipeline.step("a", says=says, finds=[ADA])
    pipeline.step("b", 1, "a", says=later, end="terminated")
    pipeline.reward("r")
    pipeline.tick(20)
    assert pipeline.texts(pipeline.settled[0]) == ["I am [PERSON_1]", "Hello!", "Bye", "Bye, [PERSON_1]"]
    assert pipeline.settled[0].findings == {"PERSON": 1}
    assert pipeline.settled[0].redaction == "r1"


def test_rendered_text_is_sealed_under_the_redacted_class_for_the_same_people(pipeline: Pipeline) -> None:
    pipeline.step("a", end="terminated")
    pipeline.reward("r")
    pipeline.tick(20)
    settled = pipeline.settled[0]
    for ref in settled.chains[0].segments:
        (chunk,) = pipeline.rendered.chunks(settled.trajectory, "rendered:0", ref.segment)
        assert (chunk.seal_class, chunk.subjects) == ("redacted", ref.subjects)
        assert b"hello" not in chunk.data


def test_a_late_arrival_of_an_on_time_reward_gives_what_revision_0_would_have_been(pipeline: Pipeline) -> None:
    in_time, late = Pipeline(), pipeline
    for one in (in_time, late):
        one.door = pipeline.door
        one.start()
        one.step("a")
        one.end("z", 1, "a")
    in_time.reward("r", event_ms=500, received_ms=600)
    in_time.tick(WINDOW_MS + 1)
    late.tick(WINDOW_MS + 1)
    late.reward("r", event_ms=500, received_ms=5 * WINDOW_MS)
    late.tick(5 * WINDOW_MS)
    unrewarded, rewarded = late.settled
    assert unrewarded.rewards == ()
    assert content(rewarded) == content(in_time.settled[0])
    assert (rewarded.revision, rewarded.supersedes) == (1, 0)
    assert late.verdict() == ("eligible", ())


def test_a_step_after_the_end_reopens_the_trajectory_as_a_new_revision(pipeline: Pipeline) -> None:
    pipeline.step("a")
    pipeline.end("z", 1, "a")
    pipeline.reward("r")
    pipeline.tick(20)
    pipeline.step("b", 2, "z", received_ms=50)
    pipeline.tick(60)
    assert len(pipeline.settled) == 1
    pipeline.tick(50 + 100_000)
    assert [(one.revision, one.supersedes, one.steps, one.end) for one in pipeline.settled] == [
        (0, None, 2, "terminated"),
        (1, 0, 3, "idle"),
    ]


def test_the_order_of_arrival_does_not_show_in_the_newest_digest() -> None:
    first, second = Pipeline(), Pipeline()
    second.door = first.door
    second.start()
    records = [first.header("a"), first.header("b", 1, "a"), first.header("z", 2, "b", says=(), end="terminated")]
    for record in records:
        second.raw.put_findings(record)
    second.raw = first.raw
    second.start()
    for record in records:
        first.feed(FINDINGS.name, record)
    first.reward("r")
    first.tick(20)
    second.reward("r")
    for record in reversed(records):
        second.feed(FINDINGS.name, record)
        second.tick(20)
        second.feed(FINDINGS.name, record)
    second.tick(30)
    assert second.settled[-1].digest == first.settled[-1].digest


def test_a_reward_before_its_steps_waits_for_them(pipeline: Pipeline) -> None:
    pipeline.reward("r")
    pipeline.tick(10 * WINDOW_MS)
    assert pipeline.settled == []
    pipeline.step("a", end="terminated")
    pipeline.tick(10 * WINDOW_MS + 1)
    assert len(pipeline.settled[0].rewards) == 1


def test_redelivery_never_doubles_a_reward(pipeline: Pipeline) -> None:
    """Case 35: four trajectories with a hundred rewards of 1 each sum to a hundred each, delivered three times."""
    for name in ("t1", "t2", "t3", "t4"):
        pipeline.step("a", trajectory=name, end="terminated")
    for _ in range(3):
        for i in range(100):
            for name in ("t1", "t2", "t3", "t4"):
                pipeline.reward(f"{name}-{i}", 1.0, trajectory=name)
        pipeline.start()
        pipeline.tick(20)
    assert [sum(reward.value for reward in one.rewards) for one in pipeline.settled] == [100.0] * 4


def test_the_counter_goes_on_after_a_restart(pipeline: Pipeline) -> None:
    pipeline.step("a", end="terminated")
    pipeline.reward("r")
    pipeline.tick(20)
    pipeline.start()
    pipeline.reward("s", 0.0)
    pipeline.tick(30)
    assert [one.revision for one in pipeline.settled] == [0, 1]


def test_the_same_step_with_another_content_is_a_conflict(pipeline: Pipeline) -> None:
    record = pipeline.header("a", end="terminated")
    pipeline.feed(FINDINGS.name, record)
    with pytest.raises(Poison, match="conflict"):
        pipeline.feed(FINDINGS.name, replace(record, header=replace(record.header, digest="another")))
    pipeline.feed(FINDINGS.name, record)


def test_the_same_reward_with_another_value_is_a_conflict_and_the_first_one_stands(pipeline: Pipeline) -> None:
    pipeline.step("a", end="terminated")
    pipeline.reward("r", 1.0)
    with pytest.raises(Poison, match="conflict"):
        pipeline.reward("r", 0.0)
    pipeline.tick(20)
    assert [reward.value for reward in pipeline.settled[0].rewards] == [1.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(pipeline: Pipeline, value: float) -> None:
    with pytest.raises(Poison, match="undecodable"):
        pipeline.reward("r", value)


def test_an_event_of_another_tenant_never_enters_a_trajectory() -> None:
    pipeline = Pipeline("acme", "other")
    record = pipeline.header("a")
    pipeline.feed(FINDINGS.name, record)
    stranger = replace(record.header, tenant="other", event=f"{record.header.event[:-1]}0")
    with pytest.raises(Poison, match="tenant_mismatch"):
        pipeline.feed(FINDINGS.name, replace(record, header=stranger))


def test_a_trajectory_whose_segment_the_store_lacks_waits_and_stops_no_other(pipeline: Pipeline) -> None:
    header = pipeline.step("a", end="terminated")
    pipeline.reward("r")
    pipeline.raw.drop_space(header.trajectory, "raw")
    pipeline.step("a", trajectory="sound", end="terminated")
    pipeline.tick(20)
    pipeline.tick(20 + LACKING_MS)
    waits = [settled.trajectory == header.trajectory for settled in pipeline.settled]
    pipeline.header("a", end="terminated")
    pipeline.tick(20 + 2 * LACKING_MS)
    assert True not in waits
    assert header.trajectory in [settled.trajectory for settled in pipeline.settled]


def test_a_damaged_segment_is_a_hole_and_takes_no_other_trajectory_along(pipeline: Pipeline) -> None:
    header = pipeline.step("a", end="terminated")
    pipeline.step("a", trajectory="sound", end="terminated")
    pipeline.reward("r")
    pipeline.reward("s", trajectory="sound")
    (chunk,) = pipeline.raw.chunks(header.trajectory, "raw", header.observation[0].id)
    pipeline.raw.put_chunks(header.trajectory, "raw", [replace(chunk, data=chunk.data[:-1] + b"x")])
    pipeline.tick(20)
    verdicts = {one.settled.trajectory: (one.verdict, one.reasons) for one in pipeline.decisions}
    assert verdicts.pop(header.trajectory) == ("rejected", ("empty", "segment_unreadable"))
    assert list(verdicts.values()) == [("eligible", ())]


def test_an_erased_third_person_leaves_a_hole_and_what_came_before_it(pipeline: Pipeline) -> None:
    pipeline.step("a")
    pipeline.step("b", 1, "a", says=[("user", "my son", ("son",)), ("assistant", "noted", ())], end="terminated")
    pipeline.reward("r")
    pipeline.tick(20)
    pipeline.erase("son")
    pipeline.tick(30)
    pipeline.tick(40)
    before, after = pipeline.settled
    assert (after.revision, after.supersedes, before.holes, after.holes) == (1, 0, 0, 1)
    assert pipeline.texts(after) == ["hello", "hi", None, "noted"]
    assert [ref.trained for ref in after.chains[0].segments] == [False, True, False, False]
    assert pipeline.verdict() == ("eligible", ("hole_after_action",))


def test_a_key_that_is_gone_before_anybody_says_so_makes_a_hole(pipeline: Pipeline) -> None:
    pipeline.step("a")
    pipeline.step("b", 1, "a", says=[("user", "my son", ("son",)), ("assistant", "noted", ())], end="terminated")
    pipeline.reward("r")
    son = pipeline.subject("son")
    pipeline.door.destroy_subject("acme", "son")
    pipeline.start()
    pipeline.tick(20)
    assert pipeline.settled[0].holes == 1
    pipeline.fact("erasure", subject=son)
    pipeline.tick(30)
    assert len(pipeline.settled) == 1


def test_another_policy_moves_the_deadline_of_what_waits(pipeline: Pipeline) -> None:
    pipeline.step("a", end="terminated")
    pipeline.tick(20)
    assert pipeline.settled == []
    policy = replace(pipeline.facts.policy("acme"), reward_window_s=1.0, version=2)
    pipeline.fact("policy", tenant=None, policy=policy)
    pipeline.tick(1000)
    assert len(pipeline.settled) == 1


def test_a_far_off_clock_closes_no_window(pipeline: Pipeline) -> None:
    """Case 37: a step from 2051 and a reward from 1970 neither close another trajectory nor keep one open."""
    far = 2_556_057_600_000
    pipeline.step("a", trajectory="far", event_ms=far, time_suspect=True)
    pipeline.reward("r", trajectory="far", event_ms=1000, time_suspect=True)
    pipeline.step("a", trajectory="sane", event_ms=0)
    pipeline.tick(99_999)
    assert pipeline.settled == []
    pipeline.tick(100_000)
    assert [(one.end, "time_suspect" in one.flags, one.last_ms) for one in pipeline.settled] == [("idle", True, 0)]


def test_a_tick_reads_no_step_of_a_trajectory_that_is_not_due(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    pipeline.tick(1)
    for i in range(50):
        pipeline.step("a", trajectory=f"open-{i}", received_ms=1_000_000)
    due = pipeline.step("a", end="terminated")
    pipeline.reward("r")
    read: list[str] = []
    header = pipeline.raw.header

    def reading(trajectory: str, event: str) -> StepHeader | None:
        read.append(event)
        return header(trajectory, event)

    monkeypatch.setattr(pipeline.raw, "header", reading)
    pipeline.tick(20)
    assert read == [due.event]


def test_a_row_takes_at_most_256_bytes(pipeline: Pipeline) -> None:
    header = pipeline.step("a", end="terminated")
    pipeline.reward(
        "r", 0.1, name="n" * 128, event_ms=2**41, received_ms=2**41, supersedes=header.event, step=header.event
    )
    with pipeline.stores[SettleStage].transaction({}) as tx:
        assert max(len(key) + len(value) for key, value in tx.scan(b"")) <= 256


def test_a_settled_record_travels_under_its_trajectory(pipeline: Pipeline) -> None:
    pipeline.step("a", end="terminated")
    pipeline.reward("r")
    worker = pipeline.workers[SettleStage]
    (output,) = worker.feed(InRecord(TICKS.name, 0, 0, None, encode(TickRecord(tick_ms=20))))
    assert output.topic == TRAJECTORIES.name
    assert output.key == dict(output.headers)["ce_id"].split(b"/")[0]
    assert dict(output.headers)["ce_tenant"] == b"acme"
