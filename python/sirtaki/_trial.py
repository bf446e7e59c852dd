"""What a program says when it is a trial of ``sirtaki search``.

Reports are lines of JSON on standard output, which any program could write; here is only what
makes that convenient. A trial that is given up gets SIGTERM. Whoever has called ``report`` hears
of it through ``should_stop`` and has some seconds to save something; all others simply end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from types import FrameType

_stopping = threading.Event()
_listening = threading.Event()


def report(step: int | None = None, value: float | None = None, **values: float) -> None:
    """Report how this trial is doing: after a step, or at its end.

    ``value`` is that of the study's objective, or of the first one if there are several; any
    objective can be given by its name. Outside a study this prints a line and does nothing else.

    >>> import sirtaki
    >>> sirtaki.report(3, val_loss=0.31)
    {"step": 3, "val_loss": 0.31}
    """
    _listen()
    said: dict[str, float] = {} if step is None else {"step": int(step)}
    if value is not None:
        said[os.environ.get("SIRTAKI_OBJECTIVE", "value").split(",")[0]] = float(value)
    said.update({name: float(one) for name, one in values.items()})
    if not said.keys() - {"step"}:
        raise ValueError(
            "there is nothing to report\nhint: give a value, or values by their names"
        )
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def should_stop() -> bool:
    """Whether the study has given this trial up, so that it can save something and end.

    >>> import sirtaki
    >>> sirtaki.should_stop()
    False
    """
    _listen()
    return _stopping.is_set()


def _listen() -> None:
    """Takes note of SIGTERM, unless the program has plans of its own for it."""
    if _listening.is_set() or "SIRTAKI_TRIAL" not in os.environ:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    _listening.set()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _asked)


def _asked(_signal: int, _frame: FrameType | None) -> None:
    _stopping.set()
