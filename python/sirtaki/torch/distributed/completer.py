"""Fulfils futures of collectives, which runs the callbacks that programs have attached to them.

Callbacks may start further collectives, and ranks have to start them in the same order. So futures
of a group are fulfilled one after another, in the order in which the program asked for them.

Callbacks may also wait for other futures. Those of collectives that a callback has started itself
have an order of their own, which goes on while the callback waits. A callback that waits for
anything else does not hold up the others for long: the completer notices that its thread is idle.

As soon as a collective is done, the engine is told that its callback may submit something, so that
a rank whose other threads wait is not taken for one that will submit nothing more.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Callable

from sirtaki import _native

_threads: weakref.WeakSet = weakref.WeakSet()
PATIENCE = 5.0
"""Seconds that threads have to end when the process ends."""
SPARE = 2
"""Threads that are kept when there is nothing to do."""
LOOKS = 0.25
"""Seconds between two checks of a callback that others wait for."""


def join_threads() -> None:
    """Waits for all threads of closed completers, whose engines have ended.

    A thread that is inside PyTorch when the interpreter ends would abort the process.
    """
    deadline = time.monotonic() + PATIENCE
    for thread in list(_threads):
        thread.join(max(0.0, deadline - time.monotonic()))


class _Queue:
    """Futures that are fulfilled one after another."""

    def __init__(self, parent: _Queue | None = None) -> None:
        self.parent = parent
        """The queue whose callback this one belongs to, once that has returned."""
        self.tasks: deque[_Task] = deque()
        self.running: _Task | None = None
        self.is_watched = False

    def is_empty(self) -> bool:
        return not self.tasks and self.running is None


class _Task:
    """A future to fulfil once its collective is done."""

    def __init__(self, queue: _Queue, call: Callable[[], None]) -> None:
        self.queue, self.call = queue, call
        self.is_done = False
        self.hand_in: _native.HandIn | None = None
        """What its callbacks may submit."""
        self.thread = 0
        self.inner = _Queue()
        """Collectives that its callbacks have started."""


class _Current(threading.local):
    task: tuple[Completer, _Task] | None = None


_current = _Current()


class Completer:
    """Threads that fulfil futures; none are started before the first future."""

    def __init__(self, ordered: bool) -> None:  # noqa: D107
        self._queue = _Queue() if ordered else None
        self._completions = _native.Completions()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._tasks: dict[int, _Task] = {}
        self._idle, self._closed = 0, False
        self._threads: list[threading.Thread] = []

    def complete(self, handle: Any, call: Callable[[], None]) -> None:
        """Calls a function that fulfils a future, once the handle, if any, is done."""
        with self._lock:
            number = next(self._numbers)
            task = self._tasks[number] = _Task(self._queue_here(), call)
            task.queue.tasks.append(task)
            if self._idle == 0:
                self._start_thread()
        if handle is None:
            self._completions.put(number)
        else:
            handle.notify(self._completions, number)

    def _queue_here(self) -> _Queue:
        if self._queue is None:
            return _Queue()
        if _current.task is not None and _current.task[0] is self:
            return _current.task[1].inner
        return self._queue

    def close(self, waits: bool) -> None:
        """Ends the threads once all earlier futures are fulfilled; ``waits`` until then."""
        with self._lock:
            self._closed = True
            if not self._tasks:
                self._completions.close()
            threads = list(self._threads)
        for thread in threads:
            if waits and thread is not threading.current_thread():
                thread.join()

    def _start_thread(self) -> None:
        self._idle += 1
        thread = threading.Thread(target=self._run, name="sirtaki-futures", daemon=True)
        _threads.add(thread)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while True:
            number = self._completions.next()
            if number is None:
                return
            with self._lock:
                self._idle -= 1
                task = self._tasks.pop(number)
                task.hand_in = self._completions.hand_in(number)
                task.is_done = True
                if self._tasks and self._idle == 0:
                    # This one may be busy or waiting for a long time.
                    self._start_thread()
                elif self._closed and not self._tasks:
                    self._completions.close()
            queue = task.queue
            # Otherwise it would keep its tensors alive until the next one comes.
            del task
            self._advance(queue)
            with self._lock:
                if self._idle >= SPARE:
                    self._threads.remove(threading.current_thread())
                    return
                self._idle += 1

    def _advance(self, queue: _Queue) -> None:
        """Fulfils what is next in a queue, as far as it is done."""
        while True:
            with self._lock:
                if not queue.tasks or not queue.tasks[0].is_done:
                    return
                if queue.running is not None:
                    self._watch(queue)
                    return
                task = queue.running = queue.tasks.popleft()
                task.thread = threading.get_native_id()
            before, _current.task = _current.task, (self, task)
            try:
                with task.hand_in or nullcontext():
                    task.call()
            finally:
                _current.task = before
            with self._lock:
                left = self._leave(task)
            del task
            if left is None:
                return
            queue = left

    def _leave(self, task: _Task) -> _Queue | None:
        """The queue that can go on when the callbacks of a task have returned."""
        queue = task.queue
        # Another thread may have gone on without it.
        if queue.running is task:
            if not task.inner.is_empty():
                # What the task has started comes before what follows the task.
                task.inner.parent = queue
                return None
            queue.running = None
        while queue.is_empty() and queue.parent is not None:
            queue = queue.parent
            queue.running = None
        return queue

    def _watch(self, queue: _Queue) -> None:
        if not queue.is_watched:
            queue.is_watched = True
            watcher = threading.Thread(
                target=self._go_on_without, args=(queue,), name="sirtaki-futures", daemon=True
            )
            _threads.add(watcher)
            watcher.start()

    def _go_on_without(self, queue: _Queue) -> None:
        """Goes on with a queue when its callback waits for something it did not start itself."""
        task, switches = queue.running, None
        while task is not None:
            time.sleep(LOOKS)
            with self._lock:
                if queue.running is not task or not task.inner.is_empty():
                    task, switches = queue.running, None
                    continue
                now = _switches(task.thread)
                if switches is None or now != switches:
                    switches = now
                    continue
                queue.running = None
                break
        with self._lock:
            queue.is_watched = False
        self._advance(queue)


def _switches(thread: int) -> str | None:
    """How often a thread was put to sleep and woken: constant while it only waits."""
    with suppress(OSError):
        lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
        return " ".join(line for line in lines if "ctxt_switches" in line)
    return None
