"""From counts to a status: sums over tenants, the account, and percentiles. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ebbtide_governance.tables.merging import CountKey
from ebbtide_governance.tables.views import Account, Failure, Latency, Rewards, Samples, Status


def status_of(
    tenant: str | None,
    counts: Mapping[CountKey, int],
    last_errors: list[Failure],
    latency: Latency | None,
    lag: dict[str, int] | None,
) -> Status:
    """The status that ``counts`` add up to; they are of ``tenant`` alone, or of all tenants if it is None."""
    sums: defaultdict[str, dict[str, int]] = defaultdict(dict)
    samples: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (owner, name, detail), value in sorted(counts.items()):
        sums[name][detail] = sums[name].get(detail, 0) + value
        if name == "samples":
            samples[owner][detail] = value
    return Status(
        tenant=tenant,
        steps=sums["steps"].get("", 0),
        segments=sums["segments"].get("scanned", 0),
        erased_segments=sums["segments"].get("erased", 0),
        findings=_present(sums["findings"]),
        account=_account(sums["trajectories"]),
        reasons=_by_verdict(sums["reasons"]),
        rewards=_rewards(sums["rewards"]),
        samples={owner: _samples(of) for owner, of in samples.items()},
        groups=_present(sums["groups"]),
        quarantine=_present(sums["quarantine"]),
        last_errors=last_errors,
        latency=latency,
        lag=lag,
    )


def latency_of(times: Sequence[tuple[int, int | None, int | None]]) -> Latency | None:
    """Percentiles over (curated, last received, settled) times; None if there is nothing to measure.

    A step that came after the first sample says nothing about how long that sample took: it is left out.
    """
    whole = sorted(curated - received for curated, received, _ in times if received is not None and received <= curated)
    settled = sorted(max(0, curated - tick) for curated, _, tick in times if tick is not None)
    if not whole:
        return None
    return Latency(
        samples=len(whole),
        p50_ms=percentile(whole, 50),
        p95_ms=percentile(whole, 95),
        max_ms=whole[-1],
        settled_p50_ms=percentile(settled, 50),
        settled_p95_ms=percentile(settled, 95),
    )


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The nearest-rank percentile of sorted values; 0 of none."""
    if not ordered:
        return 0
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _account(states: Mapping[str, int]) -> Account:
    return Account(
        trajectories_in=states.get("in", 0),
        eligible=states.get("eligible", 0),
        rejected=states.get("rejected", 0),
        held=states.get("held", 0),
        open=states.get("open", 0),
        quarantined=states.get("quarantined", 0),
    )


def _rewards(states: Mapping[str, int]) -> Rewards:
    routed, parked = states.get("routed", 0), states.get("parked", 0)
    return Rewards(seen=routed + parked, routed=routed, parked=parked)


def _samples(states: Mapping[str, int]) -> Samples:
    return Samples(
        live=states.get("live", 0), withdrawn=states.get("withdrawn", 0), misplaced=states.get("misplaced", 0)
    )


def _by_verdict(reasons: Mapping[str, int]) -> dict[str, dict[str, int]]:
    by_verdict: dict[str, dict[str, int]] = {}
    for detail, value in _present(reasons).items():
        verdict, _, code = detail.partition(":")
        by_verdict.setdefault(verdict, {})[code] = value
    return by_verdict


def _present(values: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in values.items() if value}
