"""What grows, grows with new work and not with what is there already: counted at N and at 10 N, never timed.

`make test-long` makes the same claims at full size.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.scale.catalogue import CLAIMS
from support.scale.claim import Claim, Measured


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_the_cost_has_the_slope_that_is_claimed(claim: Claim, tmp_path: Path) -> None:
    measured = claim.measure(claim.small, tmp_path)
    assert measured.met, str(measured)


@pytest.mark.parametrize(
    ("few", "many", "met"), [(7, 7, True), (7, 8, False), (10, 11, True), (10, 100, False)], ids=str
)
def test_a_flat_claim_bears_hardly_any_growth(few: float, many: float, met: bool) -> None:
    assert Measured(_claim("flat"), 10, few, many).met is met


@pytest.mark.parametrize(("few", "many", "met"), [(10, 100, True), (10, 120, False), (0.5, 50, False)], ids=str)
def test_a_linear_claim_refuses_what_grows_with_the_square(few: float, many: float, met: bool) -> None:
    assert Measured(_claim("linear"), 10, few, many).met is met


def test_a_bound_holds_at_both_sizes() -> None:
    claim = Claim("", "", lambda size, folder: 0, 256, 10, 10)
    assert Measured(claim, 10, 256, 256).met
    assert not Measured(claim, 10, 257, 1).met
    assert not Measured(claim, 10, 1, 257).met


def _claim(bar: str) -> Claim:
    assert bar in ("flat", "linear")
    return Claim("", "", lambda size, folder: 0, "flat" if bar == "flat" else "linear", 10, 10)
