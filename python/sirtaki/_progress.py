"""A program's progress, for the launcher's live view, its dashboard and the folder of the run."""

from __future__ import annotations

import time
from typing import Any

from sirtaki import _trackers
from sirtaki._core import job

PAUSE = 0.1
"""Seconds between two reports of the number of steps."""


class _Said:
    """What this process has reported, by the program itself and by counting."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.by_program = False
        self.counted = 0
        self.last = 0
        self.when: float | None = None
        self.trackers: list[Any] | None = None


_said = _Said()


class Pace:
    """How often a callback reports: reading numbers in every step would cost too much."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        """Whether enough time has passed since this was last the case."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + PAUSE
        return True


def progress(
    step: int,
    steps: int | None = None,
    *,
    epoch: float | None = None,
    epochs: int | None = None,
    samples: int | None = None,
    loss: float | None = None,
    accuracy: float | None = None,
    test_loss: float | None = None,
    test_accuracy: float | None = None,
) -> None:
    """Reports how far this process has come; leave out what is not known.

    ``step`` of ``steps`` are done, and ``epoch`` of ``epochs``, which may be fractional;
    ``samples`` were seen by all ranks together; shares are numbers from 0 to 1. A call takes about
    a microsecond. Reading a number from a GPU means waiting for it, so do not pass ``loss.item()``
    in every step there.

    Every rank may call it. The reports of the lowest rank that does so stand for the job: on a
    terminal, on the page of ``sirtaki run --dashboard``, and, if it is rank 0, in the folder of
    ``--record``. If a program never calls it, ``DistributedOptimizer`` and ``data_parallel`` count
    its steps.

    >>> import sirtaki, sirtaki.torch as hvd
    >>> hvd.init()
    >>> for step in range(3):
    ...     sirtaki.progress(step + 1, 3, samples=64 * (step + 1), loss=1 / (step + 1))
    """
    number = _number
    learned = [number(loss), number(accuracy), number(test_loss), number(test_accuracy)]
    job.engine().progress(int(step), steps, number(epoch), epochs, samples, learned)
    _said.by_program = True
    trackers = _trackers_of_job()
    if trackers:
        names = ("epoch", "loss", "accuracy", "test_loss", "test_accuracy")
        known = zip(names, [number(epoch), *learned])
        values = {name: value for name, value in known if value is not None}
        for tracker in trackers:
            tracker.values(int(step), values)


def describe(**settings: Any) -> None:
    """Writes settings, such as a learning rate, into the folder of the run.

    ``sirtaki report`` shows them and compares runs by them. Only those of rank 0 count; a later
    value replaces an earlier one.

    >>> import sirtaki, sirtaki.torch as hvd
    >>> hvd.init()
    >>> sirtaki.describe(model="resnet50", optimizer="sgd", lr=0.1, batch_per_worker=32)
    """
    job.engine().describe({name: str(value) for name, value in settings.items()})
    for tracker in _trackers_of_job():
        tracker.settings(settings)


def count(step: int) -> None:
    """Reports the number of steps from time to time, unless the program makes its own reports."""
    if _said.by_program:
        return
    # Of several optimizers, the one with the most steps counts.
    _said.counted = max(_said.counted, step)
    now = time.monotonic()
    if _said.when is None:
        # A program that makes its own reports may make the first one after its first step.
        _said.when = now
    elif now - _said.when >= PAUSE and job.is_initialized():
        _said.when = now
        _pass_on()


def close() -> None:
    """Called on leaving the job: reports the last steps and starts afresh for the next job."""
    if not _said.by_program and _said.counted > _said.last:
        _pass_on()
    for tracker in _said.trackers or ():
        tracker.close()
    _said.begin()


job.world.leaving.append(close)


def _trackers_of_job() -> list[Any]:
    """Those of rank 0, which speaks for the job."""
    if _said.trackers is None:
        _said.trackers = _trackers.find() if job.rank() == 0 else []
    return _said.trackers


def _pass_on() -> None:
    _said.last = _said.counted
    job.engine().progress(_said.counted, None, None, None, None, [None] * 4)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
