"""What the read model answers over the little governed log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ebbtide_governance.tables.reading import ReadModel
from ebbtide_governance.tables.summary import latency_of, percentile
from ebbtide_governance.tables.views import Account, Rewards, Samples, TrajectoryView
from ebbtide_platform.errors import InvalidInput
from support.governed_log import START_MS, governed_log
from support.read_model import fill, fresh_read_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadModel]:
    with fresh_read_model(tmp_path_factory.mktemp("reading")) as engine:
        fill(governed_log(), engine)
        yield ReadModel(engine)


def _why(model: ReadModel, trajectory: str, tenant: str = "acme") -> TrajectoryView:
    view = model.why(tenant, trajectory)
    assert view is not None
    return view


def test_every_trajectory_that_came_in_stands_in_exactly_one_place(model: ReadModel) -> None:
    account = model.status("acme").account
    assert account == Account(trajectories_in=8, eligible=1, rejected=2, held=2, open=2, quarantined=1)
    assert account.balanced
    assert not Account(trajectories_in=1, eligible=1, rejected=1, held=0, open=0, quarantined=0).balanced


def test_repeats_on_the_log_are_counted_once(model: ReadModel) -> None:
    status = model.status("acme")
    assert (status.steps, status.segments, status.findings) == (10, 3, {"EMAIL_ADDRESS": 3, "PERSON": 3})
    assert status.reasons == {
        "held": {"binary_unseen": 2},
        "rejected": {"consent_withdrawn": 1, "purpose_missing": 1, "unrewarded": 1},
    }


def test_a_reward_without_a_known_target_shows_as_parked(model: ReadModel) -> None:
    assert model.status("acme").rewards == Rewards(seen=2, routed=1, parked=1)
    assert model.status("globex").rewards == Rewards(seen=1, routed=1, parked=0)


def test_samples_are_counted_per_tenant_in_their_newest_state(model: ReadModel) -> None:
    assert model.status(None).samples == {
        "acme": Samples(live=1, withdrawn=1, misplaced=0),
        "globex": Samples(live=1, withdrawn=0, misplaced=0),
    }
    assert set(model.status("globex").samples) == {"globex"}


def test_the_operator_sees_the_sum_of_the_tenants_and_what_nobody_owns(model: ReadModel) -> None:
    acme, globex, everybody = model.status("acme"), model.status("globex"), model.status(None)
    assert everybody.steps == acme.steps + globex.steps
    assert everybody.quarantine == {"redaction_failed": 1, "undecodable": 1}
    assert acme.quarantine == {"redaction_failed": 1}
    assert globex.quarantine == {}
    assert [failure.reason for failure in globex.last_errors] == []


def test_latency_runs_from_the_last_step_to_the_first_time_the_sample_was_there(model: ReadModel) -> None:
    latency = model.status("acme").latency
    assert latency is not None
    assert latency.samples == 2
    assert latency.max_ms >= latency.p95_ms >= latency.p50_ms > 0


def test_percentiles_are_by_nearest_rank() -> None:
    assert [percentile([1, 2, 3, 4], percent) for percent in (0, 50, 75, 100)] == [1, 2, 3, 4]
    assert percentile([], 50) == 0
    assert latency_of([]) is None


def test_a_step_after_the_sample_does_not_make_a_negative_latency() -> None:
    assert latency_of([(10, 20, 5)]) is None


def test_why_names_every_reason_with_what_would_change_it(model: ReadModel) -> None:
    view = _why(model, "unpaid")
    assert view.state == "rejected"
    assert len(view.decisions) == 1
    assert [reason.code for reason in view.decisions[0].reasons] == ["unrewarded", "purpose_missing"]
    assert all(reason.text and reason.remedy for reason in view.decisions[0].reasons)
    assert all(reason.remedy in view.next for reason in view.decisions[0].reasons)


def test_why_keeps_the_whole_history_newest_first(model: ReadModel) -> None:
    assert [(found.verdict, found.facts_offset) for found in _why(model, "refused").decisions] == [
        ("rejected", 4),
        ("eligible", 1),
    ]
    sample = _why(model, "refused").samples[0]
    assert (sample.live, sample.reasons) == (False, ["consent_withdrawn"])


def test_why_says_until_when_an_open_trajectory_waits(model: ReadModel) -> None:
    # The policy on the log says 60 s of silence; the one step came at the start.
    view = _why(model, "open")
    assert view.state == "open"
    assert view.last_received_ms == START_MS
    assert "60 s of silence (2023-11-14 22:14:20 UTC)" in view.next


def test_why_sends_a_quarantined_one_to_replay_and_shows_one_that_came_back(model: ReadModel) -> None:
    broken, mended = _why(model, "broken"), _why(model, "mended")
    assert (broken.state, mended.state) == ("quarantined", "open")
    assert "ebbtide replay" in broken.next
    assert [failure.replayed_ms is not None for failure in (*broken.quarantine, *mended.quarantine)] == [False, True]


def test_the_same_trajectory_id_of_two_tenants_is_two_answers(model: ReadModel) -> None:
    assert (_why(model, "good").steps, _why(model, "good", "globex").steps) == (3, 2)
    assert (_why(model, "good").revision, _why(model, "good", "globex").revision) == (1, 0)
    assert model.why("globex", "refused") is None


def test_lists_come_in_pages_that_join_without_gap_or_repeat(model: ReadModel) -> None:
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = model.trajectories("acme", state=None, after=cursor, limit=3)
        seen += [item.trajectory for item in page.items]
        cursor = page.cursor
    assert seen == sorted(["good", "refused", "unpaid", "open", "broken", "mended", "grouped-a", "grouped-b"])


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("eligible", ["good"]),
        ("rejected", ["refused", "unpaid"]),
        ("held", ["grouped-a", "grouped-b"]),
        ("open", ["mended", "open"]),
        ("quarantined", ["broken"]),
    ],
)
def test_a_list_of_one_state_holds_what_the_account_counts(model: ReadModel, state: str, expected: list[str]) -> None:
    page = model.trajectories("acme", state=state, after="", limit=100)
    assert [item.trajectory for item in page.items] == expected


def test_quarantine_pages_by_time_newest_first(model: ReadModel) -> None:
    first = model.quarantine("acme", before="", limit=1)
    assert first.cursor is not None
    second = model.quarantine("acme", before=first.cursor, limit=1)
    offsets = [item.offset for page in (first, second) for item in page.items]
    assert sorted(offsets) == [70, 71]
    with pytest.raises(InvalidInput):
        model.quarantine("acme", before="tomorrow", limit=1)


def test_a_group_is_open_until_it_is_closed(model: ReadModel) -> None:
    groups = {item.group: item for item in model.groups("acme", after="", limit=10).items}
    assert {name: group.state for name, group in groups.items()} == {"g-1": "short", "g-2": "open"}
    assert [member["verdict"] for member in groups["g-1"].members] == ["held", "held"]
    assert model.group_state("acme", "g-1") == "short"
    assert model.group_state("acme", "unknown") == "open"


def test_the_last_record_about_a_sample_is_known_by_its_offset(model: ReadModel) -> None:
    acme = model.newest_offsets("acme", ["sample-good", "sample-refused", "sample-unseen"])
    assert set(acme) == {"sample-good", "sample-refused"}
    assert model.newest_offsets("globex", ["sample-good", "sample-refused"]) == {"sample-good": 0}
    assert acme["sample-good"] > 0
