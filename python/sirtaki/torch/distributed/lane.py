"""Requests to one engine, in the order of the program.

PyTorch's collectives have no names, only an order that is the same on all ranks, and the engine
wants names; it is fastest where the same ones come again. So a name is the kind of collective, the
number of elements and a small number that goes round. Who has as many of the same on their way
waits for the oldest before the next: names then depend on the order alone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from typing import Any, Callable

import torch

from sirtaki._native import Engine
from sirtaki.torch.distributed.work import Completer, Work

AT_ONCE = 8
"""Collectives of one kind and size that are on their way at the same time."""


class Lane:
    """An engine, the names that are in use, and the thread for futures."""

    def __init__(self, engine: Engine, owned: bool, at_once: int = AT_ONCE) -> None:  # noqa: D107
        self._engine: Engine | None = engine
        self._owned, self._at_once = owned, at_once
        self._completer = Completer()
        self._counting = threading.Lock()
        self._counts: dict[str, int] = defaultdict(int)
        # Also keeps works alive that only PyTorch's C++ knows: older versions do not do that.
        self._flying: dict[str, Work] = {}

    @property
    def engine(self) -> Engine:
        """What runs the collectives."""
        if self._engine is None:
            raise ValueError("this process group was destroyed\nhint: make a new one")
        return self._engine

    def submit(
        self, kind: str, elements: int, device: torch.device, start: Callable[[Engine, str], Any]
    ) -> Work:
        """Has ``start`` hand in something under a name; returns a work for it."""
        what = f"{kind}.{elements}"
        with self._counting:
            number = self._counts[what]
            self._counts[what] = (number + 1) % self._at_once
        name = f"distributed.{what}.{number}"
        before = self._flying.get(name)
        if before is not None:
            before.settle()
        settled = partial(self._flying.pop, name, None)
        work = Work(start(self.engine, name), device, self._completer, settled)
        self._flying[name] = work
        return work

    def close(self) -> None:
        """What is not done fails. An engine that others use, too, goes on."""
        engine, self._engine = self._engine, None
        if engine is not None and self._owned:
            engine.close()
        # In an engine that goes on, what it waits for may take long.
        self._completer.close(waits=self._owned)
        self._flying.clear()
