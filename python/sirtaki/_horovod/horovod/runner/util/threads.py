"""Functions in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Callable

__all__ = ["execute_function_multithreaded", "in_thread", "on_event"]


def in_thread(
    target: Callable[..., Any],
    args: tuple = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function in a new thread, which is returned; ``silent`` hides what it raises."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}; one argument is (arg,)")

    def call() -> None:
        with suppress(*((Exception,) if silent else ())):
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls a function in a new thread once ``event`` is set, unless ``stop`` is set before."""
    if event is None:
        raise ValueError("event must not be None")
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}; one argument is (arg,)")
    if stop is None and not daemon:
        raise ValueError("a thread that is not a daemon needs a stop event")

    def wait_and_call() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait_and_call, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Calls a function with each list of arguments, in threads; returns the results by index."""
    if not args_list:
        return {} if block_until_all_done else None
    pool = ThreadPoolExecutor(min(max_concurrent_executions, len(args_list)))
    futures = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    if not block_until_all_done:
        return None
    return {number: future.result() for number, future in enumerate(futures)}
