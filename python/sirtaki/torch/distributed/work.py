"""What PyTorch gets for a collective: something to wait for, and a future where it wants one."""

from __future__ import annotations

import threading
import time
import weakref
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import Work as _Work

from sirtaki._errors import Error


class Work(_Work):
    """A collective on its way. Everybody may wait for it, as often as they like."""

    def __init__(  # noqa: D107
        self,
        handle: Any,
        device: torch.device,
        completer: Completer,
        settled: Callable[[], Any],
    ) -> None:
        super().__init__()
        self._handle, self._completer, self._settled = handle, completer, settled
        self._device = device if device.type == "cuda" else None
        self._lock = threading.Lock()
        self._result: list[torch.Tensor] = []
        self._error: Exception | None = None
        self._event: Any = None
        self._future: Any = None

    def settle(self) -> None:
        """Waits until it is done, well or badly. Ctrl-C ends the wait and not the work."""
        with self._lock:
            if self._handle is None:
                return
            try:
                self._result = self._handle.wait() or []
                if self._device is not None:
                    self._event = torch.cuda.current_stream(self._device).record_event()
            except Exception as error:
                self._error = error
            self._handle = None
            self._settled()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits, without the interpreter's lock; the current stream of a GPU waits as well."""
        if timeout:
            self._wait_at_most(timeout)
        self.settle()
        if self._error is not None:
            raise self._error
        if self._event is not None:
            torch.cuda.current_stream(self._device).wait_event(self._event)
        return True

    def _wait_at_most(self, timeout: timedelta) -> None:
        deadline, pause = time.monotonic() + timeout.total_seconds(), 1e-5
        while not self.is_completed():
            if time.monotonic() > deadline:
                raise Error(
                    f"a collective was not done within {timeout.total_seconds():g} s\n"
                    "hint: see what the other ranks are doing, or wait longer"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def synchronize(self) -> None:
        """The same as waiting."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether waiting would return at once."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._handle is None or self._handle.poll()
        finally:
            self._lock.release()

    def is_success(self) -> bool:
        """Whether it is done and went well."""
        if not self.is_completed():
            return False
        self.settle()
        return self._error is None

    def exception(self) -> Exception | None:
        """What went wrong, if it is done and something did."""
        return None if self.is_success() or not self.is_completed() else self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that it gave."""
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future:
        """A future with the tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            promise = torch.futures.Future(devices=[self._device] if self._device else None)
            # What is raised by a callback fails for those who wait in C++, too.
            self._future = promise.then(self._value)
        self._completer.complete(self, promise)
        return self._future

    def _value(self, promise: torch.futures.Future) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return promise.value()


class Together(_Work):
    """Several works as one."""

    def __init__(self, works: list[Any]) -> None:  # noqa: D107
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for all of them."""
        for work in self._works:
            work.wait(timeout) if timeout else work.wait()
        return True

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all went well."""
        return all(work.is_success() for work in self._works)

    def result(self) -> list[torch.Tensor]:
        """The tensors of all."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> torch.futures.Future:
        """A future with the tensors of all."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(
            lambda all_: [tensor for one in all_.value() for tensor in one.value()]
        )


_threads: weakref.WeakSet = weakref.WeakSet()
PATIENCE = 5.0
"""Seconds that threads have to end when the process does."""


def join_threads() -> None:
    """Waits for all threads of closed completers, whose engines have ended.

    One that is inside PyTorch when the interpreter ends would end the process with an abort.
    """
    deadline = time.monotonic() + PATIENCE
    for thread in list(_threads):
        thread.join(max(0.0, deadline - time.monotonic()))


class Completer:
    """A thread that waits where somebody has a future, from the first one on."""

    def __init__(self) -> None:  # noqa: D107
        self._queue: SimpleQueue = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._streams: dict[Any, Any] = {}

    def complete(self, work: Work, promise: torch.futures.Future) -> None:
        """Fulfils the promise when the work is done."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, args=(self._queue,), name="sirtaki-futures", daemon=True
            )
            _threads.add(self._thread)
            self._thread.start()
        self._queue.put(lambda: self._fulfil(work, promise))

    def close(self, waits: bool) -> None:
        """Ends the thread once everything before is fulfilled; ``waits`` until then."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._queue.put(None)
        if waits and thread is not threading.current_thread():
            thread.join()

    @staticmethod
    def _run(queue: SimpleQueue) -> None:
        while True:
            task: Callable[[], None] | None = queue.get()
            if task is None:
                return
            task()
            # Else it would keep its tensors until the next one comes.
            del task

    def _fulfil(self, work: Work, promise: torch.futures.Future) -> None:
        device = work._device
        if device is None:
            work.settle()
            promise.set_result(work._result)
            return
        # On a stream of its own, so that copies back do not wait for what the program computes.
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        with torch.cuda.stream(self._streams[device]):
            work.settle()
            promise.set_result(work._result)
