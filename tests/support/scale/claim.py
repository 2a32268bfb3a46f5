"""What is claimed about cost, and how a claim is judged: by the slope between N and ten times N."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Bar = Literal["flat", "linear"] | int
"""How the cost may grow, or, as a number, what it may be at most at either size."""
STEP = 10
"""Between the two sizes at which a cost is counted."""
SLACK = 1.1
"""Batches and B-tree pages end where they end; a wrong slope is out by far more."""
_SLOPES = {"flat": SLACK, "linear": SLACK * STEP}
ROW_BYTES = 256
"""The design's bound for a row of state."""


@dataclass(frozen=True)
class Claim:
    """One sentence about cost, what counts it, and the sizes at which it is tried."""

    says: str
    unit: str
    cost: Callable[[int, Path], float]
    """The cost at a size, in ``unit``; the folder is empty and its own."""
    bar: Bar
    small: int
    """The larger size of `make test`."""
    full: int
    """The larger size of `make test-long`."""

    def measure(self, size: int, folder: Path) -> Measured:
        """Count at a tenth of ``size`` and at ``size``."""
        costs = []
        for n in (size // STEP, size):
            place = folder / str(n)
            place.mkdir(parents=True)
            costs.append(self.cost(n, place))
        return Measured(self, size, *costs)


@dataclass(frozen=True)
class Measured:
    """A claim with what was counted."""

    claim: Claim
    size: int
    few: float
    """The cost at a tenth of ``size``."""
    many: float
    """The cost at ``size``."""

    @property
    def slope(self) -> float:
        """How many times more ten times as much costs."""
        return self.many / self.few

    @property
    def met(self) -> bool:
        """Whether the bar is reached."""
        if isinstance(self.claim.bar, int):
            return max(self.few, self.many) <= self.claim.bar
        return self.slope <= _SLOPES[self.claim.bar]

    @property
    def wanted(self) -> str:
        """The bar in words."""
        if isinstance(self.claim.bar, int):
            return f"at most {self.claim.bar:,}"
        return f"slope at most {_SLOPES[self.claim.bar]:g}"

    def __str__(self) -> str:
        return (
            f"{self.claim.says}: {self.few:,.6g} {self.claim.unit} at {self.size // STEP:,} and "
            f"{self.many:,.6g} at {self.size:,} (slope {self.slope:.3g}; {self.wanted})"
        )
