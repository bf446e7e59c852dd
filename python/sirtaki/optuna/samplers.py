"""Optuna's samplers by their names.

Each stands for one of Sirtaki's; of their options the seed counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "BaseSampler",
    "BruteForceSampler",
    "CmaEsSampler",
    "GPSampler",
    "GridSampler",
    "NSGAIISampler",
    "QMCSampler",
    "RandomSampler",
    "TPESampler",
]


class BaseSampler:
    """What chooses parameters. ``name`` is what Sirtaki calls it."""

    name = "auto"

    def __init__(self, *args: Any, seed: int | None = None, **options: Any) -> None:
        """With Optuna's options."""
        self.seed = seed
        self.options = options


class RandomSampler(BaseSampler):
    """Uniform random points."""

    name = "random"

    def __init__(self, seed: int | None = None) -> None:
        """With Optuna's options."""
        super().__init__(seed=seed)


class TPESampler(BaseSampler):
    """What good trials have in common and others have not."""

    name = "tpe"


class GPSampler(BaseSampler):
    """Where a Gaussian process expects most improvement."""

    name = "gaussian"


class CmaEsSampler(BaseSampler):
    """A normal distribution that moves and adapts its shape."""

    name = "cma-es"


class NSGAIISampler(BaseSampler):
    """Children of the best trials, for several objectives."""

    name = "nsga2"


class QMCSampler(BaseSampler):
    """Points that fill the space evenly."""

    name = "sobol"


class BruteForceSampler(BaseSampler):
    """Every combination once."""

    name = "grid"


class GridSampler(BaseSampler):
    """Every combination of the given values once."""

    # The combinations are queued; only trials beyond them have to be chosen.
    name = "random"

    def __init__(self, search_space: Mapping[str, Sequence[Any]], seed: int | None = None) -> None:
        """With Optuna's options."""
        super().__init__(seed=seed)
        self.search_space = {name: list(values) for name, values in search_space.items()}
