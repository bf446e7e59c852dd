"""The names by which ranks recognise the same tensor."""

from __future__ import annotations

import threading

from sirtaki._core.job import world

NAMES = 4096
"""How many names unnamed tensors share; with more in flight, later ones wait for earlier ones."""


def name_for(kind: str, name: str | None, process_set: int | None, waits: bool = False) -> str:
    """The name by which ranks recognise the same tensor.

    Where the caller gives none, it is a number that wraps around, so that there are not too many
    names. A caller that waits at once has only one tensor in flight, which needs no number; then
    the same order repeats, and the engine learns it.
    """
    if name is not None:
        full = f"{kind}.{name}"
        if (full, process_set) in world.in_flight:
            raise ValueError(
                f"{kind} of `{name}`: another tensor with the same name is currently being "
                "processed\nhint: wait for it with synchronize(), or use another name"
            )
        return full
    if waits and threading.current_thread() is threading.main_thread():
        return f"{kind}.noname"
    return f"{kind}.noname.{next(world.counters[kind, process_set]) % NAMES}"
