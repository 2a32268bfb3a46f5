"""Groups close complete, short or expired; never across tenants; and the order of their members says nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ebbtide_governance.grouping import close, reference
from ebbtide_schemas.records import GroupRecord, GroupRef, MemberRecord
from support.trajectories import POLICY, member

GROUP = GroupRef(id="g-1", size=4)
DEADLINE_MS = 501_000


def closed(members: list[MemberRecord], *, now_ms: int = 2000, is_closed: bool = False) -> GroupRecord | None:
    return close(GROUP, members, POLICY, now_ms=now_ms, first_seen_ms=1000, is_closed=is_closed)


def state(members: list[MemberRecord], *, now_ms: int = 2000, is_closed: bool = False) -> str | None:
    record = closed(members, now_ms=now_ms, is_closed=is_closed)
    return record.state if record else None


def test_a_group_is_complete_with_as_many_eligible_members_as_it_declared() -> None:
    record = closed([member(f"t{i}") for i in range(4)])
    assert record is not None
    assert (record.state, record.tenant, record.closed_ms, len(record.members)) == ("complete", "acme", 2000, 4)


def test_a_group_stays_open_while_members_are_missing() -> None:
    assert closed([member(f"t{i}") for i in range(3)]) is None
    assert closed([]) is None


def test_the_deadline_closes_a_group_with_what_it_has() -> None:
    assert state([member(f"t{i}") for i in range(3)], now_ms=DEADLINE_MS) == "short"
    assert state([member("t0")], now_ms=DEADLINE_MS) == "expired"
    assert state([member("t0")], now_ms=DEADLINE_MS - 1) is None


def test_a_group_whose_members_are_all_decided_does_not_wait_for_the_deadline() -> None:
    """Case 21: of four members one came without a reward; the other three are a short group, and it says why."""
    record = closed([*(member(f"t{i}") for i in range(3)), member("t3", "rejected", reasons=("unrewarded",))])
    assert record is not None
    assert record.state == "short"
    assert [one.reasons for one in record.members if one.verdict != "eligible"] == [("unrewarded",)]


def test_a_held_member_keeps_the_group_open_until_the_deadline() -> None:
    members = [*(member(f"t{i}") for i in range(3)), member("t3", "held")]
    assert state(members) is None
    assert state(members, now_ms=DEADLINE_MS) == "short"


def test_a_group_of_one_is_complete_with_one() -> None:
    record = close(GroupRef(id="g-1", size=1), [member("t0")], POLICY, now_ms=1000, first_seen_ms=1000)
    assert record is not None
    assert record.state == "complete"


def test_a_closed_group_does_not_open_again() -> None:
    members = [*(member(f"t{i}") for i in range(3)), member("t3", "held")]
    assert state(members, is_closed=True) == "short"


def test_only_the_newest_verdict_on_a_trajectory_counts() -> None:
    old = [member(f"t{i}") for i in range(4)]
    newer = member("t0", "rejected", revision=1)
    judged_again = member("t1", "rejected", facts_offset=5)
    record = closed([newer, judged_again, *old])
    assert record is not None
    assert [one.verdict for one in record.members] == ["rejected", "rejected", "eligible", "eligible"]


def test_members_of_another_tenant_or_group_are_never_in_it() -> None:
    """Case 23: the same group id from another tenant is not one of ours."""
    members = [member(f"t{i}") for i in range(3)]
    stranger = member("t9", tenant="other")
    elsewhere = member("t8", group=GroupRef(id="g-2", size=4))
    record = closed([*members, stranger, elsewhere], now_ms=DEADLINE_MS)
    assert record is not None
    assert [one.trajectory for one in record.members] == ["t0", "t1", "t2"]


@given(st.permutations([*(member(f"t{i}") for i in range(4)), member("t2", "rejected", revision=1), member("t0")]))
def test_the_order_and_number_of_arrivals_say_nothing(members: list[MemberRecord]) -> None:
    assert closed(members) == closed(sorted(members, key=lambda one: (one.trajectory, one.revision)))


def test_where_members_disagree_on_the_size_the_largest_counts() -> None:
    members = [member("t0", size=2), member("t1", size=4), replace(member("t2"), group=GroupRef(id="g-1", size=3))]
    assert reference(members).size == 4
    assert reference([replace(member("t0"), group=GroupRef(id="g-1", size=2, index=1))]).index is None
