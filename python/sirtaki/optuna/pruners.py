"""Optuna's pruners by their names, as rules of Sirtaki's for stopping early."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = [
    "BasePruner",
    "HyperbandPruner",
    "MedianPruner",
    "NopPruner",
    "PatientPruner",
    "SuccessiveHalvingPruner",
]


class BasePruner:
    """Which trials to give up: ``stop`` is the rule as a study's file has it."""

    stop: Mapping[str, Any] = MappingProxyType({"method": "none"})


class NopPruner(BasePruner):
    """All trials may finish."""


class MedianPruner(BasePruner):
    """Ends trials that are worse than half of the others were at the same step."""

    def __init__(
        self,
        n_startup_trials: int = 5,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        *,
        n_min_trials: int = 1,
    ) -> None:
        """With Optuna's options."""
        self.stop = {"method": "median", "startup": n_startup_trials, "warmup": n_warmup_steps}


class SuccessiveHalvingPruner(BasePruner):
    """Asynchronous successive halving."""

    def __init__(
        self,
        min_resource: str | int = 1,
        reduction_factor: int = 4,
        min_early_stopping_rate: int = 0,
        bootstrap_count: int = 0,
    ) -> None:
        """With Optuna's options."""
        first = 1 if min_resource == "auto" else int(min_resource)
        first *= reduction_factor**min_early_stopping_rate
        self.stop = {
            "method": "asha",
            "min": first,
            "max": first * reduction_factor**8,
            "factor": reduction_factor,
        }


class HyperbandPruner(BasePruner):
    """Several of these with later and later first steps."""

    def __init__(
        self,
        min_resource: int = 1,
        max_resource: str | int = "auto",
        reduction_factor: int = 3,
        bootstrap_count: int = 0,
    ) -> None:
        """With Optuna's options."""
        last = min_resource * reduction_factor**4 if max_resource == "auto" else int(max_resource)
        self.stop = {
            "method": "hyperband",
            "min": min_resource,
            "max": last,
            "factor": reduction_factor,
        }


class PatientPruner(BasePruner):
    """Ends trials that did not improve for a while; what it wraps does not count."""

    def __init__(
        self, wrapped_pruner: BasePruner | None, patience: int, min_delta: float = 0.0
    ) -> None:
        """With Optuna's options."""
        self.stop = {"method": "patience", "steps": max(patience, 1), "tolerance": min_delta}
