"""The hash chain: what makes a step, and a trajectory, impossible to change unseen.

Digests cover headers, whose segment ids stand for the text, and never ciphertext: a retry has the same
digest, and the chain still verifies when every key is gone.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from ebbtide_schemas.canonical import canonical
from ebbtide_schemas.records import StepHeader


def header_digest(header: StepHeader) -> str:
    """SHA-256, hex, of the canonical header without its digest, its receipt time and what was judged by that.

    Raises:
        CanonicalError: the header holds a number that has no canonical form.
    """
    bare = msgspec.structs.replace(header, digest="", received_ms=0, time_suspect=False)
    return hashlib.sha256(canonical(bare)).hexdigest()


def trajectory_root(digests: Sequence[str]) -> str:
    """SHA-256, hex, of the canonical JSON array of step digests; they must stand in chain order."""
    return hashlib.sha256(canonical(list(digests))).hexdigest()


def chain_order(headers: Iterable[StepHeader]) -> list[StepHeader]:
    """Parents before children, and among those that are free the lowest (ordinal, event id) first.

    The order depends on the set alone. A step whose parent is absent counts as a first step; steps whose
    parents form a ring come last, by (ordinal, event id).
    """
    by_event = {header.event: header for header in headers}
    children: dict[str, list[StepHeader]] = {}
    free: list[tuple[int, str]] = []
    for header in by_event.values():
        if header.parent in by_event:
            children.setdefault(header.parent, []).append(header)
        else:
            free.append((header.ordinal, header.event))
    heapq.heapify(free)
    ordered: list[StepHeader] = []
    while free:
        header = by_event.pop(heapq.heappop(free)[1])
        ordered.append(header)
        for child in children.get(header.event, ()):
            heapq.heappush(free, (child.ordinal, child.event))
    return ordered + sorted(by_event.values(), key=lambda header: (header.ordinal, header.event))


def verify_chain(headers: Sequence[StepHeader], root: str | None = None) -> list[str]:
    """What is wrong with the steps of one trajectory, as sentences that name event ids; empty if all holds.

    Looks for digests that do not match, ids that stand twice, several trajectories, absent parents, parents
    that do not come first, and, if ``root`` is given, for another root.
    """
    problems = [f"{h.event}: the digest does not match the header" for h in headers if h.digest != header_digest(h)]
    problems += [f"{event}: stands {n} times" for event, n in Counter(h.event for h in headers).items() if n > 1]
    if len({header.trajectory for header in headers}) > 1:
        problems.append("the steps belong to several trajectories")
    events = {header.event for header in headers}
    ordered = chain_order(headers)
    seen: set[str] = set()
    for header in ordered:
        if header.parent is not None and header.parent not in seen:
            absent = header.parent not in events
            problems.append(f"{header.event}: its parent {'is absent' if absent else 'descends from it'}")
        seen.add(header.event)
    if root is not None and root != trajectory_root([header.digest for header in ordered]):
        problems.append("the trajectory root does not match the steps")
    return problems
