"""Requests to one engine, in the order of the program."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Callable

import torch

from sirtaki.torch.distributed.completer import Completer
from sirtaki.torch.distributed.names import Names
from sirtaki.torch.distributed.work import Work


class Lane:
    """An engine, the names of requests to it, and the threads for futures."""

    def __init__(self, engine: Any, owned: bool, names: Names, ordered: bool) -> None:  # noqa: D107
        self._engine, self._owned = engine, owned
        self._completer = Completer(ordered)
        self._lock = threading.Lock()
        self._names = names
        # Also keeps works alive that only PyTorch's C++ code refers to: older versions do not do
        # that.
        self._in_flight: set[Work] = set()
        self._limit = 64

    @property
    def engine(self) -> Any:
        """The engine that runs the collectives."""
        if self._engine is None:
            raise ValueError("this process group was destroyed\nhint: make a new one")
        return self._engine

    def submit(
        self,
        call: str,
        size: int | None,
        devices: list[torch.device],
        start: Callable[[Any, Any], Any],
    ) -> Work:
        """Has ``start`` submit something under a name; returns a work for it."""
        engine = self.engine
        with self._lock:
            name = self._names.name(call, size)
        settled = partial(self._settled, name[0])
        work = Work(start(engine, name), devices, self._completer, settled)
        self._in_flight.add(work)
        if len(self._in_flight) > self._limit:
            # Works that nothing waits for end here.
            for other in list(self._in_flight):
                if other.is_completed():
                    other.settle()
            self._limit = 64 + 2 * len(self._in_flight)
        return work

    def _settled(self, name: str, work: Work) -> None:
        self._in_flight.discard(work)
        if work.is_refused:
            with self._lock:
                self._names.give_back(name)

    def close(self) -> None:
        """Unfinished requests fail. A shared engine goes on."""
        engine, self._engine = self._engine, None
        if engine is not None and self._owned:
            engine.close()
        # In an engine that goes on, what it waits for may take a long time.
        self._completer.close(waits=self._owned)
        self._in_flight.clear()
