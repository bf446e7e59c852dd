"""PyTorch's view of a collective: something to wait for, and a future where it wants one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Work as _Work

from sirtaki._errors import Error
from sirtaki.torch.distributed.completer import Completer

_streams: dict[torch.device, Any] = {}
"""Streams that copy back results for futures, without waiting for the program's own work."""


class Work(_Work):
    """A collective in flight. Any thread may wait for it, any number of times."""

    _error: Exception | None = None
    _events: Sequence[tuple[torch.device, Any]] = ()
    _future: Any = None
    source: Sequence[int] = ()
    """The rank that sent a message, once that is known."""

    def __init__(  # noqa: D107
        self,
        handle: Any,
        devices: list[torch.device],
        completer: Completer,
        settled: Callable[[Work], Any],
    ) -> None:
        super().__init__()
        self._handle, self._completer, self._settled = handle, completer, settled
        self._devices = devices
        """The GPUs of its tensors."""
        self._lock = threading.Lock()
        self._result: list[torch.Tensor] = []

    def settle(self) -> None:
        """Waits until it is done, successfully or not. Ctrl-C ends the wait, not the work."""
        with self._lock:
            if self._handle is None:
                return
            try:
                self._result = self._handle.wait() or []
                self._events = [
                    (device, torch.cuda.current_stream(device).record_event())
                    for device in self._devices
                ]
            except Exception as error:
                self._error = error
            self._handle = None
            self._settled(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits, without the interpreter's lock; the current streams of GPUs wait as well."""
        if timeout:
            self._wait_at_most(timeout)
        self.settle()
        if self._error is not None:
            raise self._error
        for device, event in self._events:
            torch.cuda.current_stream(device).wait_event(event)
        return True

    def _wait_at_most(self, timeout: timedelta) -> None:
        seconds = timeout.total_seconds()
        deadline, pause = time.monotonic() + seconds, 1e-5
        while not self.is_completed():
            if time.monotonic() > deadline:
                raise Error(
                    f"the timeout of {seconds:g} s has passed, and a collective is not done\n"
                    "hint: see what the other ranks are doing, or wait longer"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def synchronize(self) -> None:
        """The same as waiting."""
        self.wait()

    def _source_rank(self) -> int:
        """The rank that sent a message."""
        self.wait()
        return self.source[0]

    def is_completed(self) -> bool:
        """Whether waiting would return at once."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._handle is None or self._handle.poll()
        finally:
            self._lock.release()

    @property
    def is_refused(self) -> bool:
        """Whether it is done, and ranks disagreed about it."""
        return getattr(self._error, "refused", False)

    def is_success(self) -> bool:
        """Whether it is done and succeeded."""
        if not self.is_completed():
            return False
        self.settle()
        return self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, if it is done and something did."""
        return None if self.is_success() or not self.is_completed() else self._error

    def result(self) -> list[torch.Tensor]:
        """The resulting tensors."""
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future:
        """A future with the tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            promise = torch.futures.Future(devices=self._devices or None)
            # An exception raised by a callback fails waits in C++, too.
            self._future = promise.then(self._value)
            handle = self._handle
        self._completer.complete(handle, lambda: self._fulfil(promise))
        return self._future

    def _fulfil(self, promise: torch.futures.Future) -> None:
        with ExitStack() as streams:
            for device in self._devices:
                if device not in _streams:
                    _streams[device] = torch.cuda.Stream(device)
                streams.enter_context(torch.cuda.stream(_streams[device]))
            self.settle()
            for device, event in self._events:
                torch.cuda.current_stream(device).wait_event(event)
            promise.set_result(self._result)

    def _value(self, promise: torch.futures.Future) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return promise.value()


class CombinedWork(_Work):
    """Several works as one."""

    def __init__(self, works: list[Any]) -> None:  # noqa: D107
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for all of them."""
        for work in self._works:
            work.wait(timeout) if timeout else work.wait()
        return True

    def synchronize(self) -> None:
        """The same as waiting."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all succeeded."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Exception | None:
        """What went wrong first, if something did."""
        errors = (work.exception() for work in self._works)
        return next((error for error in errors if error is not None), None)

    def result(self) -> list[torch.Tensor]:
        """The tensors of all."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> torch.futures.Future:
        """A future with the tensors of all."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(
            lambda all_: [tensor for one in all_.value() for tensor in one.value()]
        )
