"""Optuna's studies over Sirtaki's.

Ranks of a job that create a study without a storage are its workers: they meet in a journal that
is named after the job, so that each worker knows what the others found.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Union

from sirtaki._errors import Error
from sirtaki._native import NativeStudy
from sirtaki.optuna import pruners as _pruners
from sirtaki.optuna import samplers as _samplers
from sirtaki.optuna.distributions import BaseDistribution
from sirtaki.optuna.exceptions import DuplicatedStudyError, TrialPruned
from sirtaki.optuna.logging import get_logger
from sirtaki.optuna.storages import path_of
from sirtaki.optuna.trial import FrozenTrial, Trial, TrialState

Objective = Callable[[Trial], Union[float, Sequence[float]]]
Callback = Callable[["Study", FrozenTrial], None]


_PAUSE = 0.05
"""Seconds between looks at what other ranks still do."""


class StudyDirection:
    """Which way a value should go."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Study:
    """A study; made by ``create_study`` or ``load_study``."""

    def __init__(self, native: NativeStudy, together: bool = False) -> None:
        """Over a native study."""
        self._native = native
        self._together = together
        self._wanted = 0
        about = json.loads(native.about())
        self.study_name: str = about["name"]
        self.directions: list[str] = [one.split(" ")[0] for one in about["objectives"]]
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @property
    def direction(self) -> str:
        """Which way the value should go."""
        if len(self.directions) > 1:
            raise RuntimeError("a study with several objectives has no single direction")
        return self.directions[0]

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials."""
        return self.get_trials()

    def get_trials(
        self, deepcopy: bool = True, states: Iterable[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """All trials, or those in one of these states."""
        wanted = None if states is None else set(states)
        found = [FrozenTrial(one) for one in json.loads(self._native.trials())]
        return [trial for trial in found if wanted is None or trial.state in wanted]

    @property
    def best_trial(self) -> FrozenTrial:
        """The trial with the best value."""
        number = self._native.best()
        if len(self.directions) > 1:
            raise RuntimeError("a study with several objectives has `best_trials`")
        if number is None:
            raise ValueError("No trials are completed yet.")
        return self.trials[number]

    @property
    def best_trials(self) -> list[FrozenTrial]:
        """The trials that no other beats in every objective."""
        trials = self.trials
        return [trials[number] for number in self._native.front()]

    @property
    def best_value(self) -> float:
        """The best value."""
        value = self.best_trial.value
        return math.nan if value is None else value

    @property
    def best_params(self) -> dict[str, Any]:
        """The parameters of the best trial."""
        return self.best_trial.params

    @property
    def user_attrs(self) -> dict[str, Any]:
        """What users keep with the study."""
        return {key: json.loads(value) for key, value in self._native.attributes()}

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep something with the study."""
        self._native.annotate(key, json.dumps(value))

    def stop(self) -> None:
        """Let ``optimize`` return after the trials that run."""
        self._stop.set()

    def ask(self, fixed_distributions: Mapping[str, BaseDistribution] | None = None) -> Trial:
        """The next trial, whose parameters are asked for one by one."""
        number = self._native.ask_open()
        if number is None:
            raise RuntimeError("all trials of this study were asked for")
        trial = Trial(self, number)
        for name, distribution in (fixed_distributions or {}).items():
            trial._suggest(name, distribution)
        return trial

    def tell(
        self,
        trial: Trial | int,
        values: float | Sequence[float] | None = None,
        state: TrialState | None = None,
        skip_if_finished: bool = False,
    ) -> FrozenTrial:
        """How a trial ended: its values, or a state."""
        number = trial if isinstance(trial, int) else trial.number
        if skip_if_finished and self.trials[number].state.is_finished():
            return self.trials[number]
        if state is TrialState.PRUNED:
            self._native.tell(number, "stopped", [], "")
        elif state is TrialState.FAIL or values is None:
            self._native.tell(number, "failed", [], "told so")
        else:
            told = [values] if isinstance(values, (int, float)) else list(values)
            self._native.tell(number, "finished", [float(one) for one in told], "")
        return self.trials[number]

    def enqueue_trial(
        self,
        params: Mapping[str, Any],
        user_attrs: Mapping[str, Any] | None = None,
        skip_if_exists: bool = False,
    ) -> None:
        """Try these parameters next."""
        wanted = dict(params)
        known = self.trials if skip_if_exists else []
        if any(wanted.items() <= trial.params.items() for trial in known):
            return
        self._native.enqueue(json.dumps(wanted))

    def add_trial(
        self, trial: tuple[list[float], dict[str, Any], dict[str, BaseDistribution]]
    ) -> None:
        """A trial that finished elsewhere, made by ``create_trial``."""
        values, params, distributions = trial
        self._native.enqueue(json.dumps(params))
        asked = self.ask()
        for name, distribution in distributions.items():
            asked._suggest(name, distribution)
        self.tell(asked, values)

    def optimize(
        self,
        func: Objective,
        n_trials: int | None = None,
        timeout: float | None = None,
        n_jobs: int = 1,
        catch: type[Exception] | tuple[type[Exception], ...] = (),
        callbacks: Sequence[Callback] | None = None,
        gc_after_trial: bool = False,
        show_progress_bar: bool = False,
    ) -> None:
        """Run trials until there are enough of them, or the time is over.

        Ranks that share a study without a storage do ``n_trials`` together, and all return when
        the last trial has ended; as with Optuna, workers with a storage each do as many.
        """
        self._stop.clear()
        if self._together and n_trials is not None:
            self._wanted += n_trials
            self._native.limit(self._wanted)
            n_trials = None
        begin, numbers = time.monotonic(), itertools.count()
        caught = (catch,) if isinstance(catch, type) else tuple(catch)

        def work() -> None:
            while not self._stop.is_set():
                if timeout is not None and time.monotonic() - begin >= timeout:
                    return
                with self._lock:
                    if n_trials is not None and next(numbers) >= n_trials:
                        return
                self._run_one(func, caught, callbacks or ())

        workers = os.cpu_count() or 1 if n_jobs < 0 else max(n_jobs, 1)
        if workers == 1:
            work()
        else:
            with ThreadPoolExecutor(workers) as pool:
                for done in [pool.submit(work) for _ in range(workers)]:
                    done.result()
        while self._together and self.get_trials(states=[TrialState.RUNNING]):
            time.sleep(_PAUSE)

    def _run_one(
        self, func: Objective, caught: tuple[type[Exception], ...], callbacks: Sequence[Callback]
    ) -> None:
        number = self._native.ask_open()
        if number is None:
            self._stop.set()
            return
        trial = Trial(self, number)
        try:
            value = func(trial)
            values = [value] if isinstance(value, (int, float)) else [float(one) for one in value]
            self._native.tell(number, "finished", [float(one) for one in values], "")
        except TrialPruned:
            self._native.tell(number, "stopped", [], "")
        except BaseException as error:
            self._native.tell(number, "failed", [], f"{type(error).__name__}: {error}")
            get_logger().warning("Trial %d failed because of %r", number, error)
            if not isinstance(error, caught):
                raise
        found = self.trials[number]
        get_logger().info("Trial %d: %s, %s", number, found.values, found.params)
        for callback in callbacks:
            callback(self, found)

    def trials_dataframe(self) -> Any:
        """All trials as a table of pandas."""
        pandas = importlib.import_module("pandas")
        rows = [
            {
                "number": trial.number,
                "value": trial.value,
                "state": trial.state.name,
                **{f"params_{name}": value for name, value in trial.params.items()},
            }
            for trial in self.trials
        ]
        return pandas.DataFrame(rows)


def create_study(
    *,
    storage: Any = None,
    sampler: _samplers.BaseSampler | None = None,
    pruner: _pruners.BasePruner | None = None,
    study_name: str | None = None,
    direction: str | None = None,
    load_if_exists: bool = False,
    directions: Sequence[str] | None = None,
) -> Study:
    """A new study. Ranks of a job that create the same one share it.

    >>> import sirtaki.optuna as optuna
    >>> study = optuna.create_study(direction="maximize", study_name="example")
    >>> trial = study.ask()
    >>> study.tell(trial, trial.suggest_int("depth", 1, 9)).state.name
    'COMPLETE'
    """
    path = path_of(storage)
    job = os.environ.get("SIRTAKI_JOB")
    shared = job is not None and int(os.environ.get("SIRTAKI_SIZE", "1")) > 1
    together = path is None and shared
    if together:
        path = os.path.join("runs", f"optuna-{job}", "journal.log")
    name = study_name or (
        "no-name" if path is None or shared else f"no-name-{os.urandom(4).hex()}"
    )
    ways = list(directions) if directions is not None else [direction or "minimize"]
    names = ["value"] if len(ways) == 1 else [f"value{index or ''}" for index in range(len(ways))]
    chosen = sampler or _samplers.TPESampler()
    seed = int.from_bytes(os.urandom(4), "big") if chosen.seed is None else chosen.seed
    about = {
        "name": name,
        "objectives": [f"{_way(way)} {one}" for way, one in zip(ways, names)],
        "sampler": chosen.name if sampler is not None else "auto",
        "seed": seed,
    }
    # As in Optuna, trials that report are compared by the median unless said otherwise.
    if len(ways) == 1:
        about["stop"] = dict((pruner or _pruners.MedianPruner()).stop)
    wanted = "any" if load_if_exists or shared else "new"
    try:
        study = Study(NativeStudy(json.dumps(about), path, wanted), together)
    except Error as error:
        if re.search(r"study `.*` is in .* already", str(error)):
            raise DuplicatedStudyError(str(error)) from None
        raise
    first = os.environ.get("SIRTAKI_RANK", "0") == "0" or not together
    if isinstance(chosen, _samplers.GridSampler) and first and not study.trials:
        spread = itertools.product(*chosen.search_space.values())
        for point in spread:
            study.enqueue_trial(dict(zip(chosen.search_space, point)))
    return study


def load_study(
    *,
    study_name: str | None,
    storage: Any,
    sampler: _samplers.BaseSampler | None = None,
    pruner: _pruners.BasePruner | None = None,
) -> Study:
    """A study that is there already, whoever made it; it keeps its own sampler and pruner."""
    path = path_of(storage)
    if path is None:
        raise ValueError(
            "a study in memory cannot be loaded\nhint: name the journal as its storage"
        )
    name = study_name or get_all_study_names(storage)[-1]
    return Study(NativeStudy(json.dumps({"name": name}), path, "existing"))


def get_all_study_names(storage: Any) -> list[str]:
    """The names of the studies in a journal, as its lines tell them."""
    path = path_of(storage)
    names: list[str] = []
    gone: set[int] = set()
    with open(path or os.devnull, encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                continue
            record = json.loads(line)
            if record["op_code"] == 0 and record["study_name"] not in names:
                names.append(record["study_name"])
            elif record["op_code"] == 1:
                gone.add(record["study_id"])
    return [name for index, name in enumerate(names) if index not in gone]


def delete_study(*, study_name: str, storage: Any) -> None:
    """Delete a journal whose only study this is."""
    path = path_of(storage)
    if path is None or get_all_study_names(storage) != [study_name]:
        raise ValueError(
            f"only a journal with study {study_name!r} alone can be deleted\n"
            "hint: give every study a journal of its own"
        )
    os.unlink(path)


def _way(way: Any) -> str:
    name = str(getattr(way, "name", way)).lower()
    if name not in ("minimize", "maximize"):
        raise ValueError(f"the direction is {way!r}, but must be 'minimize' or 'maximize'")
    return name
