"""Programs in a job whose ranks change: they are compiled once and run in many rounds.

A reduction asks the engine how many ranks there are when it runs, so it follows. What a program
knows about the ranks because its shapes depend on them does not: where that is so, JAX's programs
are compiled again when ranks have changed. There is no way to ask for that for single programs.
"""

from __future__ import annotations

import jax

from sirtaki._core import elastic, job
from sirtaki._core.process_sets import global_process_set
from sirtaki._errors import Error
from sirtaki.jax import _handler

_compiled_for: list[tuple[int, int]] = []
"""Rank and number of ranks that programs rely on, if there are such programs."""


def relies_on_ranks() -> None:
    """Notes that the program that is being traced is only right for the present ranks."""
    if job.is_elastic():
        _compiled_for[:] = [(job.rank(), job.size())]


def _arrive() -> None:
    """Has programs from before use the new engine."""
    _handler.announce_again(global_process_set)
    if _compiled_for and _compiled_for != [(job.rank(), job.size())]:
        _compiled_for.clear()
        jax.clear_caches()


def _failure_in(error: Exception) -> Error | None:
    """The failed collective that an exception of JAX's is about, if it is about one."""
    text = str(error)
    # The second is for programs so small that XLA runs them in the thread that calls them.
    if not isinstance(error, (jax.errors.JaxRuntimeError, ValueError)):
        return None
    if "was not done: " not in text and "ranks disagree: " not in text:
        return None
    return elastic.failed(text, "ranks disagree: " in text)


job.world.arriving.append(_arrive)
job.world.translations.append(_failure_in)
