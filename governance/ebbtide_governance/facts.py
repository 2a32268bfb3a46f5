"""What has been ruled so far: policies, consents, holds, erasures and reviews, in the total order of the log.

Entries are only ever appended, each with its offset, so a *view* is no copy: it reads the newest entry below
its own offset, and a decision that began under one view ends under it while facts go on coming in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, TypeVar

from ebbtide_schemas.records import FactRecord, Policy

ValueT = TypeVar("ValueT")
Consent = Literal["given", "withdrawn"]

TOUCHES = 10_000
"""Newest facts of which is known whom they touch (about 3 MB); older questions are answered "everybody"."""


@dataclass(frozen=True)
class Review:
    """What a person ruled on a trajectory, and when: it speaks of the revision that stood then."""

    state: Literal["approved", "refused"]
    given_ms: int


@dataclass(frozen=True)
class Touched:
    """Whose verdict may have changed; ``everybody`` if that cannot be said more narrowly."""

    subjects: frozenset[str] = frozenset()
    trajectories: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    everybody: bool = False

    def __bool__(self) -> bool:
        return bool(self.everybody or self.subjects or self.trajectories or self.tenants)


@dataclass
class _History:
    """Every fact by whom it is about, as (offset, value) in order of offset."""

    policies: dict[str | None, list[tuple[int, Policy]]] = field(default_factory=dict)
    consents: dict[str, list[tuple[int, tuple[str | None, Consent]]]] = field(default_factory=dict)
    erasures: dict[str, int] = field(default_factory=dict)
    holds: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    """By subject or trajectory; both are random or keyed ids, so that one never equals the other."""
    reviews: dict[str, list[tuple[int, Review]]] = field(default_factory=dict)
    touches: deque[tuple[int, FactRecord]] = field(default_factory=lambda: deque(maxlen=TOUCHES))
    forgotten: int = 0
    """Touches below this offset are no longer known."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class FactsView:
    """The facts below ``offset``; later ones never show in it."""

    def __init__(self, history: _History, offset: int) -> None:
        self._history = history
        self._offset = offset

    @property
    def offset(self) -> int:
        """Facts below this offset are known."""
        return self._offset

    def policy(self, tenant: str) -> Policy:
        """The tenant's own newest policy, else the deployment's, else the default one."""
        for owner in (tenant, None):
            if (found := self._newest(self._history.policies.get(owner, ()))) is not None:
                return found
        return Policy()

    def consent(self, subject: str, purpose: str | None) -> Consent | None:
        """The newest word of ``subject`` about this purpose or about every purpose; None if there is none."""
        offset = self.offset
        for at, (about, state) in reversed(self._history.consents.get(subject, [])):
            if at < offset and about in (None, purpose):
                return state
        return None

    def erased(self, subject: str) -> bool:
        """True once the subject was erased; never false again."""
        return self._history.erasures.get(subject, self.offset) < self.offset

    def held(self, trajectory: str, subjects: Iterable[str]) -> bool:
        """True while a legal hold lies on the trajectory or on one of ``subjects``."""
        return any(self._newest(self._history.holds.get(name, ())) for name in (trajectory, *subjects))

    def review(self, trajectory: str) -> Review | None:
        """The newest review of the trajectory."""
        return self._newest(self._history.reviews.get(trajectory, ()))

    def touched_since(self, offset: int) -> Touched:
        """Whom the facts from ``offset`` on, up to this view's, are about."""
        until = self.offset
        with self._history.lock:
            if offset < min(self._history.forgotten, until):
                return Touched(everybody=True)
            facts = [
                fact
                for at, fact in takewhile(lambda item: item[0] >= offset, reversed(self._history.touches))
                if at < until
            ]
        policies = [fact.tenant for fact in facts if fact.kind == "policy"]
        return Touched(
            subjects=frozenset(fact.subject for fact in facts if fact.subject is not None),
            trajectories=frozenset(fact.trajectory for fact in facts if fact.trajectory is not None),
            tenants=frozenset(tenant for tenant in policies if tenant is not None),
            everybody=None in policies,
        )

    def _newest(self, entries: Sequence[tuple[int, ValueT]]) -> ValueT | None:
        offset = self.offset
        return next((value for at, value in reversed(entries) if at < offset), None)


class FactsState(FactsView):
    """The newest facts. One thread applies, any number read; whoever decides takes a `view` first."""

    def __init__(self) -> None:
        super().__init__(_History(), 0)

    def view(self) -> FactsView:
        """The facts as they stand now, for ever."""
        return FactsView(self._history, self._offset)

    def apply(self, offset: int, fact: FactRecord) -> None:
        """Take in the fact at ``offset``; one that came before is ignored, and so is one about nobody."""
        if offset < self._offset:
            return
        self._record(offset, fact)
        with self._history.lock:
            touches = self._history.touches
            if len(touches) == TOUCHES:
                self._history.forgotten = touches[0][0] + 1
            touches.append((offset, fact))
        # Last: no view may count a fact that is not in place yet.
        self._offset = offset + 1

    def _record(self, offset: int, fact: FactRecord) -> None:
        history = self._history
        if fact.kind == "policy" and fact.policy is not None:
            history.policies.setdefault(fact.tenant, []).append((offset, fact.policy))
        elif fact.kind == "consent" and fact.subject is not None and (fact.state in ("given", "withdrawn")):
            history.consents.setdefault(fact.subject, []).append((offset, (fact.purpose, fact.state)))
        elif fact.kind == "erasure" and fact.subject is not None:
            history.erasures.setdefault(fact.subject, offset)
        elif fact.kind == "hold" and fact.state in ("set", "lifted"):
            for name in filter(None, (fact.trajectory, fact.subject)):
                history.holds.setdefault(name, []).append((offset, fact.state == "set"))
        elif fact.kind == "review" and fact.trajectory is not None and fact.state in ("approved", "refused"):
            history.reviews.setdefault(fact.trajectory, []).append((offset, Review(fact.state, fact.fact_ms)))
