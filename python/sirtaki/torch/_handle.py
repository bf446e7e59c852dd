"""What a program gets for a tensor that it has handed in.

Any number of threads may wait for a handle at the same time: one of them finishes the work, such
as copying a result back, and all of them get the result.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Callable, Protocol

from sirtaki import _native

Streams = Sequence[tuple[int, int]]
"""Numbers of GPUs, and a stream of each."""


class Ticket(Protocol):
    """The engine's ticket, or one that there will be."""

    def poll(self) -> bool:
        """Whether it is done, well or badly."""

    def wait(self, streams: Streams = ()) -> Any:
        """Waits for the result; on a GPU, the work of these streams that comes next does."""

    def notify(self, completions: _native.Completions, number: int) -> None:
        """Puts a number into a queue when it is done."""


class Handle:
    """What was handed in and is not waited for yet."""

    def __init__(
        self, ticket: Ticket, finish: Callable[[Any], Any], streams: Callable[[], Streams] = tuple
    ) -> None:
        self._pending: _Pending | None = _Pending(ticket, finish, streams)

    @property
    def ticket(self) -> Ticket | None:
        """What the engine gave for it; nothing once it is waited for."""
        return None if self._pending is None else self._pending.ticket

    def poll(self) -> bool:
        """Whether it is done, well or badly."""
        pending = self._pending
        return pending is None or pending.ticket.poll()

    def wait(self) -> Any:
        """The result; ``None`` for whoever comes after somebody has got it."""
        pending = self._pending
        if pending is None:
            return None
        try:
            return pending.result()
        finally:
            # An interrupted wait can be repeated.
            if pending.settled:
                self._pending = None

    def notify(self, completions: _native.Completions, number: int) -> None:
        """Puts a number into a queue when it is done."""
        pending = self._pending
        if pending is None:
            completions.put(number)
        else:
            pending.ticket.notify(completions, number)

    def map(self, change: Callable[[Any], Any]) -> Handle:
        """The same handle, with a result that is made from the one it would have."""
        if self._pending is not None:
            finish = self._pending.finish
            self._pending.finish = lambda outcome: change(finish(outcome))
        return self


class _Pending:
    """The part of a handle that waiting threads hold on to until all of them have the result."""

    def __init__(
        self, ticket: Ticket, finish: Callable[[Any], Any], streams: Callable[[], Streams]
    ) -> None:
        self.ticket, self.finish, self._streams = ticket, finish, streams
        self.settled = False
        self._lock = threading.Lock()
        self._result: Any = None
        self._error: Exception | None = None

    def result(self) -> Any:
        with self._lock:
            if not self.settled:
                try:
                    self._result = self.finish(self.ticket.wait(self._streams()))
                except Exception as error:
                    self._error = error
                self.settled = True
        if self._error is not None:
            raise self._error
        return self._result


class Deferred:
    """A ticket that there will be once something has happened."""

    def __init__(self, future: Future) -> None:
        self._future = future

    def poll(self) -> bool:
        """Whether it is done, well or badly."""
        return self._future.done() and (
            self._future.exception() is not None or self._future.result().poll()
        )

    def wait(self, streams: Streams = ()) -> Any:
        """Waits for the result; on a GPU, the work of these streams that comes next does."""
        return self._future.result().wait(streams)

    def notify(self, completions: _native.Completions, number: int) -> None:
        """Puts a number into a queue when it is done."""

        def handed_in(future: Future) -> None:
            if future.exception() is not None:
                completions.put(number)
            else:
                future.result().notify(completions, number)

        self._future.add_done_callback(handed_in)
