"""The claims of tests/scale at full size. A bar that is not reached is printed and written down; the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.long_run import Figure
from support.scale.catalogue import CLAIMS, OPEN_CLAIMS
from support.scale.claim import STEP, Claim

pytestmark = pytest.mark.long


@pytest.mark.parametrize("claim", [*CLAIMS, *OPEN_CLAIMS], ids=lambda claim: claim.says)
def test_the_cost_is_counted_at_full_size(
    claim: Claim, tmp_path: Path, note: Callable[[str, Callable[[], Figure]], Figure]
) -> None:
    def measure() -> Figure:
        found = claim.measure(claim.full, tmp_path)
        counted = (
            f"{found.few:,.6g} {claim.unit} at {claim.full // STEP:,}, {found.many:,.6g} at N (x {found.slope:.3g})"
        )
        return Figure("Cost", claim.says, claim.full, counted, found.wanted, found.met)

    assert note(f"{claim.says} {claim.full}", measure).size == claim.full
