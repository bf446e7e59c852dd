"""How far a program is, for the launcher's live view, its dashboard and the folder of the run."""

from __future__ import annotations

import time
from typing import Any

from sirtaki import _common

PAUSE = 0.1
"""Seconds between two counts of steps that are passed on."""


class _Said:
    """What was said by this process, by the program itself and by counting."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.by_program = False
        self.counted = 0
        self.last = 0
        self.when: float | None = None


_said = _Said()


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
    """Says how far this process is; whatever is not known is left out.

    ``step`` of ``steps`` are done, and ``epoch`` of ``epochs``, which may have a fraction;
    ``samples`` were seen by all ranks together; shares are numbers from 0 to 1. It costs about a
    microsecond. A number that lies on a GPU has to be waited for, so do not say ``loss.item()``
    in every step there.

    Every rank may call it. The lowest one that does speaks for the job: on a terminal, on the page
    of ``sirtaki run --dashboard``, and, if it is rank 0, in the folder of ``--record``. Whoever
    never calls it has its steps counted by ``DistributedOptimizer`` and ``data_parallel``.

    >>> import sirtaki, sirtaki.torch as hvd
    >>> hvd.init()
    >>> for step in range(3):
    ...     sirtaki.progress(step + 1, 3, samples=64 * (step + 1), loss=1 / (step + 1))
    """
    number = _number
    learned = [number(loss), number(accuracy), number(test_loss), number(test_accuracy)]
    _common.engine().progress(int(step), steps, number(epoch), epochs, samples, learned)
    _said.by_program = True


def describe(**settings: Any) -> None:
    """Writes settings, such as a learning rate, into the folder of the run.

    ``sirtaki report`` shows them and compares runs by them. Only those of rank 0 count; a later
    value replaces an earlier one.

    >>> import sirtaki, sirtaki.torch as hvd
    >>> hvd.init()
    >>> sirtaki.describe(model="resnet50", optimizer="sgd", lr=0.1, batch_per_worker=32)
    """
    _common.engine().describe({name: str(value) for name, value in settings.items()})


def count(step: int) -> None:
    """Passes on so many steps, now and then, unless the program speaks for itself."""
    if _said.by_program:
        return
    # Of several optimizers the one with most steps counts.
    _said.counted = max(_said.counted, step)
    now = time.monotonic()
    if _said.when is None:
        # A program that speaks for itself may do so after its first step.
        _said.when = now
    elif now - _said.when >= PAUSE and _common.is_initialized():
        _said.when = now
        _pass_on()


def close() -> None:
    """The process leaves its job: the last steps are passed on, and the next job begins anew."""
    if not _said.by_program and _said.counted > _said.last:
        _pass_on()
    _said.begin()


_common.world.leaving.append(close)


def _pass_on() -> None:
    _said.last = _said.counted
    _common.engine().progress(_said.counted, None, None, None, None, [None] * 4)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
