"""Hyper-parameter studies: ask what to try, tell what came of it.

The decisions and the journal are those of ``sirtaki search``; here a study is only put into
Python's words. With a path, several processes can work on the same study.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

from sirtaki._native import NativeStudy

Domain = Union[str, Sequence[Any], Mapping[str, Any]]
"""``"log:1e-5..1"``, ``["sgd", "adam"]`` or ``{"int": [1, 6]}``, as in a study's file."""


class Trial:
    """Something to try: its ``number`` and its ``parameters``.

    Where the rule for stopping promotes (``"asha:max=27,promote=1"``), a trial may go on where an
    earlier one was stopped. ``origin`` is the number of the first of them, and so a name for
    checkpoints; for all other trials it is their own number.
    """

    def __init__(self, study: Study, number: int, parameters: dict[str, Any], origin: int) -> None:
        self._study = study
        self.number = number
        self.parameters = parameters
        self.origin = origin

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]

    def __repr__(self) -> str:
        return f"Trial({self.number}, {self.parameters})"

    def report(self, step: int, value: float) -> bool:
        """Report a value on the way. Returns whether the trial should stop."""
        return self._study._native.report(self.number, step, float(value))

    def constrain(self, name: str, value: float) -> None:
        """Say how a constraint is kept: up to 0 it is, above it is broken by that much.

        >>> import sirtaki
        >>> study = sirtaki.Study({"x": {"float": [0, 1]}})
        >>> trial = study.ask()
        >>> trial.constrain("memory", 5.5 - 8)
        """
        self._study._native.constrain(self.number, name, float(value))


class Study:
    """A search for the best parameters.

    >>> import sirtaki
    >>> study = sirtaki.Study({"x": {"float": [-5, 5]}}, "minimize loss", trials=20, seed=1)
    >>> for trial in study:
    ...     study.tell(trial, (trial["x"] - 3) ** 2)
    >>> len(study.trials), study.best["state"]
    (20, 'finished')

    With ``path`` the study is kept in a journal, which Optuna can read, and continued when it is
    there already; several processes may use it at the same time.
    """

    def __init__(
        self,
        space: str | Mapping[str, Domain] | None = None,
        objective: str | Sequence[str] = "minimize value",
        *,
        name: str = "study",
        path: str | os.PathLike[str] | None = None,
        sampler: str = "auto",
        stop: str | Mapping[str, Any] | None = None,
        seed: int = 0,
        trials: int | None = None,
    ) -> None:
        objectives = [objective] if isinstance(objective, str) else list(objective)
        about = {
            "name": name,
            "space": dict(space) if isinstance(space, Mapping) else space,
            "objectives": objectives,
            "sampler": sampler,
            "stop": stop,
            "seed": seed,
            "trials": trials,
        }
        place = None if path is None else os.fspath(path)
        self._native = NativeStudy(json.dumps(about), place, "any")

    def __iter__(self) -> Iterator[Trial]:
        """All trials that are left to run."""
        while (trial := self.ask()) is not None:
            yield trial

    def ask(self) -> Trial | None:
        """The next trial to run; none where all were asked for."""
        asked = self._native.ask()
        if asked is None:
            return None
        found = json.loads(asked)
        return Trial(self, found["number"], found["parameters"], found["origin"])

    def tell(self, trial: Trial | int, value: float | Sequence[float]) -> None:
        """The value of a trial, or its values if there are several objectives."""
        values = [value] if isinstance(value, (int, float)) else list(value)
        self._native.tell(_number(trial), "finished", [float(one) for one in values], "")

    def stopped(self, trial: Trial | int) -> None:
        """The trial was stopped early; the last value it reported counts."""
        self._native.tell(_number(trial), "stopped", [], "")

    def failed(self, trial: Trial | int, reason: str = "") -> None:
        """The trial failed."""
        self._native.tell(_number(trial), "failed", [], reason)

    def enqueue(self, **parameters: Any) -> None:
        """Try these parameters next; those that are not named are chosen.

        >>> import sirtaki
        >>> study = sirtaki.Study({"x": {"float": [-5, 5]}, "kind": ["a", "b"]})
        >>> study.enqueue(x=2.5)
        >>> study.ask()["x"]
        2.5
        """
        self._native.enqueue(json.dumps(parameters))

    @property
    def trials(self) -> list[dict[str, Any]]:
        """All trials with their states, values and parameters."""
        found: list[dict[str, Any]] = json.loads(self._native.trials())
        return found

    @property
    def best(self) -> dict[str, Any]:
        """The best trial."""
        number = self._native.best()
        if number is None:
            raise ValueError("no trial has finished yet")
        return self.trials[number]

    @property
    def importance(self) -> dict[str, float]:
        """The share of the spread of values that each parameter explains."""
        return dict(self._native.importance())

    def warm_start(self, path: str | os.PathLike[str], name: str | None = None) -> int:
        """Take over what finished in an earlier study. Returns how many trials that were."""
        return self._native.warm_start(os.fspath(path), name)


def _number(trial: Trial | int) -> int:
    return trial if isinstance(trial, int) else trial.number
