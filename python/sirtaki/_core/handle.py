"""What a program gets in return for a tensor that it has submitted.

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
    """The engine's ticket, or one that will exist later."""

    def poll(self) -> bool:
        """Whether it is done, successfully or not."""

    def wait(self, streams: Streams = ()) -> Any:
        """Waits for the result; on a GPU, makes later work of these streams wait for it."""

    def notify(self, completions: _native.Completions, number: int) -> None:
        """Puts a number into a queue when it is done."""


class Handle:
    """Something that was submitted and has not been waited for yet."""

    def __init__(
        self, ticket: Ticket, finish: Callable[[Any], Any], streams: Callable[[], Streams] = tuple
    ) -> None:
        self._pending: _Pending | None = _Pending(ticket, finish, streams)

    @property
    def ticket(self) -> Ticket | None:
        """The engine's ticket for it; ``None`` once it has been waited for."""
        return None if self._pending is None else self._pending.ticket

    def poll(self) -> bool:
        """Whether it is done, successfully or not."""
        pending = self._pending
        return pending is None or pending.ticket.poll()

    def wait(self) -> Any:
        """The result; ``None`` if it was already fetched."""
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
        """The same handle, with a result that is computed from the one it would have."""
        if self._pending is not None:
            finish = self._pending.finish
            self._pending.finish = lambda outcome: change(finish(outcome))
        return self


class _Pending:
    """The part of a handle that waiting threads keep alive until all of them have the result."""

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
    """Stands for a ticket that will exist once something has happened."""

    def __init__(self, future: Future) -> None:
        self._future = future

    def poll(self) -> bool:
        """Whether it is done, successfully or not."""
        return self._future.done() and (
            self._future.exception() is not None or self._future.result().poll()
        )

    def wait(self, streams: Streams = ()) -> Any:
        """Waits for the result; on a GPU, makes later work of these streams wait for it."""
        return self._future.result().wait(streams)

    def notify(self, completions: _native.Completions, number: int) -> None:
        """Puts a number into a queue when it is done."""

        def handed_in(future: Future) -> None:
            if future.exception() is not None:
                completions.put(number)
            else:
                future.result().notify(completions, number)

        self._future.add_done_callback(handed_in)


def synchronize(handle: Any) -> Any:
    """Waits for a handle and returns its result; ``None`` if it was already fetched.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.synchronize(hvd.allreduce_async(numpy.ones(2), op=hvd.Average))
    array([1., 1.])
    """
    return handle.wait() if isinstance(handle, Handle) else None


def poll(handle: Handle) -> bool:
    """Whether ``synchronize`` would return at once.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async(numpy.ones(2))
    >>> mean = hvd.synchronize(handle)
    >>> hvd.poll(handle)
    True
    """
    return handle.poll()
