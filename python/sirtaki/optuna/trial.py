"""Trials as Optuna shows them: one that runs, and one as it is recorded."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sirtaki.optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

if TYPE_CHECKING:
    from sirtaki.optuna.study import Study

__all__ = ["FixedTrial", "FrozenTrial", "Trial", "TrialState", "create_trial"]


class TrialState(enum.IntEnum):
    """How a trial stands."""

    RUNNING = 0
    COMPLETE = 1
    PRUNED = 2
    FAIL = 3
    WAITING = 4

    def is_finished(self) -> bool:
        """Whether nothing can change any more."""
        return self not in (TrialState.RUNNING, TrialState.WAITING)


_STATES = {
    "waiting": TrialState.WAITING,
    "running": TrialState.RUNNING,
    "finished": TrialState.COMPLETE,
    "stopped early": TrialState.PRUNED,
}


class _Suggesting:
    """The ways to ask for a parameter."""

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        raise NotImplementedError

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        """A real number."""
        return float(self._suggest(name, FloatDistribution(low, high, log, step)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """A whole number."""
        return int(self._suggest(name, IntDistribution(low, high, log, step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of a few things."""
        return self._suggest(name, CategoricalDistribution(choices))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """An older name of ``suggest_float``."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """An older name of ``suggest_float`` with ``log``."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """An older name of ``suggest_float`` with ``step``."""
        return self.suggest_float(name, low, high, step=q)


class Trial(_Suggesting):
    """A trial that runs."""

    def __init__(self, study: Study, number: int) -> None:
        """Trial ``number`` of a study."""
        self.study = study
        self.number = number
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, BaseDistribution] = {}
        self.user_attrs: dict[str, Any] = {}
        self._given_up = False

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self.params:
            domain = json.dumps(distribution.domain())
            value = json.loads(self.study._native.suggest(self.number, name, domain))
            self.params[name] = value
            self.distributions[name] = distribution
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        """A value on the way."""
        self._given_up = self.study._native.report(self.number, int(step), float(value))

    def should_prune(self) -> bool:
        """Whether the last value that was reported is not good enough to go on."""
        return self._given_up

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep something that belongs to the trial."""
        self.user_attrs[key] = value
        self.study._native.attribute(self.number, key, json.dumps(value))


class FrozenTrial(_Suggesting):
    """A trial as it is recorded."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        """As ``sirtaki search export`` describes it."""
        self.number: int = found["number"]
        self.state = _STATES.get(found["state"], TrialState.FAIL)
        self.values = [float(value) for value in found["values"].values()] or None
        self.params: dict[str, Any] = found["parameters"]
        self.intermediate_values = {step: float(value) for step, value in found["reports"]}
        self.datetime_start = _time(found["started"])
        self.datetime_complete = _time(found["ended"])
        attributes = found.get("attributes", [])
        self.user_attrs = {
            key: json.loads(value) for who, key, value in attributes if who == "user"
        }
        self.system_attrs = {
            key: json.loads(value) for who, key, value in attributes if who == "system"
        }

    @property
    def value(self) -> float | None:
        """Its value, or the last one reported if it was stopped early."""
        return None if self.values is None else self.values[0]

    @property
    def duration(self) -> datetime.timedelta | None:
        """How long it took."""
        if self.datetime_start is None or self.datetime_complete is None:
            return None
        return self.datetime_complete - self.datetime_start

    @property
    def last_step(self) -> int | None:
        """The last step that it reported."""
        return max(self.intermediate_values, default=None)

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        """Nothing: it is over."""

    def should_prune(self) -> bool:
        """Never: it is over."""
        return False

    def __repr__(self) -> str:
        """As people read it."""
        state, values = self.state.name, self.values
        return f"FrozenTrial(number={self.number}, {state=!s}, {values=}, params={self.params})"


class FixedTrial(_Suggesting):
    """A trial of given parameters that belongs to no study, to try an objective by hand.

    >>> FixedTrial({"x": 3}).suggest_int("x", 1, 5)
    3
    """

    def __init__(self, params: Mapping[str, Any], number: int = 0) -> None:
        """With these parameters."""
        self.params = dict(params)
        self.number = number
        self.user_attrs: dict[str, Any] = {}

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self.params:
            raise ValueError(f"parameter {name!r} is not among those that were given")
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        """Nobody listens."""

    def should_prune(self) -> bool:
        """Never."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep something that belongs to the trial."""
        self.user_attrs[key] = value


def create_trial(
    *,
    value: float | None = None,
    values: Sequence[float] | None = None,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
) -> tuple[list[float], dict[str, Any], dict[str, BaseDistribution]]:
    """A finished trial for ``Study.add_trial``."""
    found = [float(one) for one in (values if values is not None else [value or 0.0])]
    return found, dict(params or {}), dict(distributions or {})


def _time(text: str | None) -> datetime.datetime | None:
    if text is None:
        return None
    return datetime.datetime.fromisoformat(text).astimezone().replace(tzinfo=None)
