"""Names of collectives: ranks recognise the same call by its name.

Inside ``jit`` a function is traced once and run often, and ranks may trace it a different number
of times, for example for a last batch of another size. So a call without a name is named by its
place in the source and by how often the program that is being traced has been there before.
Outside ``jit`` calls are done in the order of the program, and one name serves all of them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from jax._src import core

_visits: WeakKeyDictionary[Any, Counter] = WeakKeyDictionary()
"""How often each program has come to a place, while it is traced."""

_PASSED = ("sirtaki", "jax", "optax", "flax", "keras", "functools", "contextlib")
"""Modules that stand between a user's line and the collective."""


def program() -> Any:
    """The program that is being traced, or ``None`` outside of any."""
    found, trace = None, core.trace_ctx.trace
    while trace is not None and not isinstance(trace, core.EvalTrace):
        found, trace = trace, getattr(trace, "parent_trace", None)
    return found


def name_for(kind: str, name: str | None) -> str:
    """The name of a call."""
    if name is not None:
        return f"{kind}.{name}"
    traced = program()
    if traced is None:
        return f"{kind}.noname"
    place = f"{kind}.{_place()}"
    visits = _visits.setdefault(traced, Counter())
    visits[place] += 1
    return place if visits[place] == 1 else f"{place}.{visits[place]}"


def _place() -> str:
    """The user's line that led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _PASSED:
            break
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
