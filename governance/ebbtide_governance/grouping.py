"""When a GRPO group closes, and in which state.

A group closes by its declared size or by the policy's deadline (receipt time), never by silence. What a
member's later revision changes in a closed group makes a new revision of the group.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ebbtide_schemas.records import GroupMember, GroupRecord, GroupRef, GroupState, MemberRecord, Policy

MIN_ELIGIBLE = 2
"""A baseline over fewer members is the member's own reward."""
_SECOND_MS = 1000


def close(
    group: GroupRef,
    members: Iterable[MemberRecord],
    policy: Policy,
    *,
    now_ms: int,
    first_seen_ms: int,
    is_closed: bool = False,
) -> GroupRecord | None:
    """The group as it closes, or None while it stays open; its revision is 0, whoever emits it numbers it.

    It is *complete* with ``group.size`` eligible members. Otherwise it closes when every member has a final
    verdict or the deadline passes: *short* with at least two eligible ones, *expired* with fewer. A group that
    ``is_closed`` does not open again. Members of another group or of another tenant than the first are ignored.
    """
    newest = newest_members(group, members)
    if not newest:
        return None
    eligible = sum(member.verdict == "eligible" for member in newest)
    decided = len(newest) >= group.size and all(member.verdict != "held" for member in newest)
    is_over = is_closed or decided or now_ms >= deadline_ms(first_seen_ms, policy)
    if eligible < group.size and not is_over:
        return None
    state: GroupState = "complete" if eligible >= group.size else "short" if eligible >= MIN_ELIGIBLE else "expired"
    return GroupRecord(
        group=replace(group, index=None),
        tenant=newest[0].tenant,
        state=state,
        revision=0,
        members=tuple(
            GroupMember(
                trajectory=member.trajectory,
                revision=member.revision,
                verdict=member.verdict,
                reasons=member.reasons,
            )
            for member in newest
        ),
        closed_ms=now_ms,
    )


def newest_members(group: GroupRef, members: Iterable[MemberRecord]) -> list[MemberRecord]:
    """The newest verdict on each trajectory of the group, in order of trajectory; one tenant's only."""
    newest: dict[str, MemberRecord] = {}
    tenant: str | None = None
    for member in members:
        tenant = tenant or member.tenant
        if member.group.id != group.id or member.tenant != tenant:
            continue
        known = newest.get(member.trajectory)
        if known is None or rank(member) > rank(known):
            newest[member.trajectory] = member
    return [newest[trajectory] for trajectory in sorted(newest)]


def reference(members: Iterable[MemberRecord]) -> GroupRef:
    """The group as its members declare it; where they disagree, the largest size, so that it waits for all."""
    declared = sorted((member.group for member in members), key=lambda group: (-group.size, group.index or 0))
    return replace(declared[0], index=None)


def rank(member: MemberRecord) -> tuple[int, int, int]:
    """Which of two verdicts on a trajectory is the newer one."""
    return (member.revision, member.facts_offset, member.decided_ms)


def deadline_ms(first_seen_ms: int, policy: Policy) -> int:
    """When a group closes with what it has, in receipt time."""
    return first_seen_ms + round(policy.group_deadline_s * _SECOND_MS)
