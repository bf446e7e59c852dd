"""What Hyperopt remembers: trials with their results, in its own words."""

from __future__ import annotations

import os
import re
from typing import Any

STATUS_NEW = "new"
STATUS_RUNNING = "running"
STATUS_OK = "ok"
STATUS_FAIL = "fail"

JOB_STATE_NEW = 0
JOB_STATE_RUNNING = 1
JOB_STATE_DONE = 2
JOB_STATE_ERROR = 3


class Algorithm:
    """A way to choose parameters: ``name`` is what Sirtaki calls it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("pass this on as `algo`; it is not called by scripts")


class Trials:
    """The trials of one or several calls of ``fmin``."""

    def __init__(self, exp_key: str | None = None) -> None:
        self.exp_key = exp_key
        self.path: str | None = None
        self.trials: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def tids(self) -> list[int]:
        """The numbers of all trials."""
        return [trial["tid"] for trial in self.trials]

    @property
    def results(self) -> list[dict[str, Any]]:
        """What the function returned for each trial."""
        return [trial["result"] for trial in self.trials]

    @property
    def vals(self) -> dict[str, list[Any]]:
        """The values of each parameter, in the order of trials."""
        found: dict[str, list[Any]] = {}
        for trial in self.trials:
            for label, values in trial["misc"]["vals"].items():
                found.setdefault(label, []).extend(values)
        return found

    def losses(self) -> list[float | None]:
        """The loss of each trial."""
        return [result.get("loss") for result in self.results]

    def statuses(self) -> list[str]:
        """The status of each trial."""
        return [result["status"] for result in self.results]

    @property
    def best_trial(self) -> dict[str, Any]:
        """The trial with the smallest loss."""
        good = [trial for trial in self.trials if trial["result"]["status"] == STATUS_OK]
        if not good:
            raise ValueError("no trial has succeeded")
        return min(good, key=lambda trial: float(trial["result"]["loss"]))

    @property
    def argmin(self) -> dict[str, Any]:
        """The parameters of the best trial."""
        vals = self.best_trial["misc"]["vals"]
        return {label: values[0] for label, values in vals.items() if values}

    def refresh(self) -> None:
        """Nothing: they are always up to date."""


class SparkTrials(Trials):
    """Without Spark: use ``sirtaki run`` for more than one worker."""

    def __init__(self, parallelism: int | None = None, **options: Any) -> None:
        super().__init__()


class MongoTrials(Trials):
    """Without MongoDB: a journal in ``runs`` that is named after the database and the key."""

    def __init__(self, arg: str, exp_key: str | None = None, **options: Any) -> None:
        super().__init__(exp_key)
        parts = [part for part in re.split(r"[/:]+", arg) if part and part != "jobs"]
        name = "-".join([parts[-1] if parts else "trials", *([exp_key] if exp_key else [])])
        self.path = os.path.join("runs", re.sub(r"[^\w.-]+", "-", name) + ".journal")
