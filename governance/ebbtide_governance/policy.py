"""The verdict on a settled trajectory: a pure function of it, the policy and the facts, with every reason.

A trajectory is *eligible* unless something rejects or holds it. All reasons are given and not the first one
only, so that somebody who mends one does not find the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ebbtide_governance.facts import FactsView
from ebbtide_governance.settlement import (
    GROUP_MIXED,
    PURPOSE_MIXED,
    SEGMENT_UNREADABLE,
    TOO_MANY_REFERENCES,
    is_rewarded,
)
from ebbtide_schemas.records import Policy, SettledRecord, Verdict


@dataclass(frozen=True)
class Reason:
    """What a reason code means, what would change it, and the verdict that it calls for."""

    text: str
    remedy: str
    verdict: Verdict
    reviewable: bool = False
    """True: a person may approve the trajectory in spite of it."""


@dataclass(frozen=True)
class Judgement:
    """A verdict with the codes of all its reasons, sorted."""

    verdict: Verdict
    reasons: tuple[str, ...]


REASONS: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        "aborted": Reason(
            "The agent or its caller broke it off.",
            "Nothing: record the task again as another trajectory.",
            "rejected",
        ),
        "binary_unseen": Reason(
            "It holds bytes (a picture, sound) that no text detector can vouch for.",
            "Have it reviewed, or allow binary content in the policy.",
            "held",
            reviewable=True,
        ),
        "consent_withdrawn": Reason(
            "Somebody it is about has withdrawn consent for this purpose.",
            "A new consent of that person for this purpose.",
            "rejected",
        ),
        "empty": Reason(
            "Nothing in it can be trained on: no action, or none that stands before a hole.",
            "Send the steps with the agent's actions.",
            "rejected",
        ),
        "erasure_pending": Reason(
            "Somebody it mentions was erased after this revision was rendered.",
            "Wait: a revision without that person's segments is on its way.",
            "held",
        ),
        "group_mixed": Reason(
            "Its steps name more than one group.",
            "Send the whole trajectory under one group id.",
            "rejected",
        ),
        "hold": Reason(
            "A legal hold lies on it or on somebody it is about.",
            "Lift the hold.",
            "held",
        ),
        "hole_after_action": Reason(
            "A segment of it was erased; actions before that are trained on, actions after it are not.",
            "Nothing: what was erased does not come back.",
            "eligible",
        ),
        "missing_parent": Reason(
            "A step names a parent that never came, so what the agent had read is not known.",
            "Send the missing step, or have it reviewed.",
            "held",
            reviewable=True,
        ),
        "purpose_missing": Reason(
            "No step says for what purpose it may be used.",
            "Send a purpose with the steps.",
            "rejected",
        ),
        "purpose_mixed": Reason(
            "Its steps name more than one purpose.",
            "Send the whole trajectory under one purpose.",
            "rejected",
        ),
        "purpose_not_allowed": Reason(
            "Its purpose is none that the policy allows.",
            "A policy that names this purpose.",
            "rejected",
        ),
        "review_approved": Reason(
            "A person approved it.",
            "A later revision needs a review of its own.",
            "eligible",
        ),
        "review_refused": Reason(
            "A person refused it.",
            "A new review.",
            "rejected",
        ),
        "segment_unreadable": Reason(
            "A segment of it is damaged, or the key door refused its key.",
            "Restore the segment store or the grant; a later step or reward renders it again.",
            "rejected",
        ),
        "subject_erased": Reason(
            "The person it was recorded with was erased.",
            "Nothing: an erasure is final.",
            "rejected",
        ),
        "subject_unknown": Reason(
            "The policy asks for a declared subject and a step names none.",
            "Declare the subject when recording, or a policy that does not ask for one.",
            "rejected",
        ),
        "superseded": Reason(
            "Its producer replaced it with another trajectory.",
            "Nothing: the other one counts.",
            "rejected",
        ),
        "too_large": Reason(
            "It is larger than the policy or a log record allows.",
            "Split the work into several trajectories, or raise the policy's limit.",
            "rejected",
        ),
        "unrewarded": Reason(
            "A reward that the policy requires did not come; unknown is never zero.",
            "Send the reward, however late: it makes a new revision.",
            "rejected",
        ),
    }
)


def decide(settled: SettledRecord, policy: Policy, facts: FactsView) -> Judgement:
    """The verdict on ``settled`` under ``policy`` and everything that ``facts`` knows."""
    codes = {*_content(settled, policy), *_people(settled, policy, facts)}
    review = facts.review(settled.trajectory)
    if review is not None and review.state == "refused":
        codes.add("review_refused")
    # An approval speaks of what the reviewer could see; a revision settled later needs its own.
    elif review is not None and review.given_ms >= settled.settled_ms:
        codes = {code for code in codes if not REASONS[code].reviewable} | {"review_approved"}
    verdicts = {REASONS[code].verdict for code in codes}
    verdict: Verdict = "rejected" if "rejected" in verdicts else "held" if "held" in verdicts else "eligible"
    return Judgement(verdict, tuple(sorted(codes)))


def label(policy: Policy) -> str:
    """How a decision names the policy it followed."""
    return f"{policy.name}@{policy.version}"


def people(settled: SettledRecord) -> frozenset[str]:
    """Everybody the trajectory is about: those it was recorded with, and those its segments name."""
    return frozenset(settled.subjects).union(*(ref.subjects for chain in settled.chains for ref in chain.segments))


def _content(settled: SettledRecord, policy: Policy) -> Iterator[str]:
    """Reasons in the trajectory itself."""
    if settled.end in ("aborted", "superseded"):
        yield settled.end
    if not is_rewarded((reward.name for reward in settled.rewards), policy):
        yield "unrewarded"
    if PURPOSE_MIXED in settled.flags:
        yield "purpose_mixed"
    elif settled.purpose is None:
        yield "purpose_missing"
    elif settled.purpose not in policy.purposes:
        yield "purpose_not_allowed"
    if GROUP_MIXED in settled.flags:
        yield "group_mixed"
    if SEGMENT_UNREADABLE in settled.flags:
        yield "segment_unreadable"
    if settled.missing_parents:
        yield "missing_parent"
    if settled.binary and not policy.allow_binary:
        yield "binary_unseen"
    if settled.text_bytes > policy.max_text_bytes or TOO_MANY_REFERENCES in settled.flags:
        yield "too_large"
    elif not settled.chains:
        yield "empty"
    elif settled.holes:
        yield "hole_after_action"


def _people(settled: SettledRecord, policy: Policy, facts: FactsView) -> Iterator[str]:
    """Reasons in what the people it is about have said, and what was ruled about them."""
    everybody = people(settled)
    if policy.require_subject and not settled.subject_declared:
        yield "subject_unknown"
    if any(facts.consent(subject, settled.purpose) == "withdrawn" for subject in everybody):
        yield "consent_withdrawn"
    if any(facts.erased(subject) for subject in settled.subjects):
        yield "subject_erased"
    elif any(map(facts.erased, _readable(settled))):
        yield "erasure_pending"
    if facts.held(settled.trajectory, everybody):
        yield "hold"


def _readable(settled: SettledRecord) -> set[str]:
    """Those whose segments this revision still shows."""
    shown = (ref for chain in settled.chains for ref in chain.segments if not ref.hole)
    return {subject for ref in shown for subject in ref.subjects}
