"""Training that goes on after a failure: state that is saved, restored and made equal.

After a failed collective, all ranks go back to what they committed last; then they leave the job,
join it again and go on. In a job whose workers come and go (``sirtaki run --min-ranks``), those
that are left go on without the others, and newcomers are let in at a commit. State comes from rank
0, which is always one of those that have it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from sirtaki._core import job, views
from sirtaki._core.job import shutdown
from sirtaki._core.process_sets import global_process_set, init
from sirtaki._errors import Error, JobOver

PATIENCE = 3
"""This many failures without a commit between them are too many, if nobody is lost."""

FIXED = (
    "the ranks of this job cannot change while it runs\n"
    "hint: start it with `sirtaki run --min-ranks 2`, or start it again from a checkpoint"
)


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """Raised at a commit on all ranks when workers come or go: all of them leave and join again.

    With ``skip_sync`` the state is not made equal afterwards.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class CallAgain(Exception):  # noqa: N818
    """Raised on all ranks alike, so that the training function is called again as things are."""


class State:
    """The state of a training. Subclasses say how to save, restore and synchronize it."""

    _commits = 0
    _is_run = False
    """Whether it is that of a training function, which can be called again."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Functions to call whenever ranks have joined again."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called when ranks have joined again."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: Any) -> None:
        """Does nothing in an elastic job, which finds out itself; others have fixed ranks."""
        if job.world.member is None:
            raise Error(FIXED)

    def commit(self) -> None:
        """Saves everything in memory; it is restored after a failure."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises ``HostsUpdatedInterrupt`` on all ranks if workers come or go.

        All ranks call it; rank 0 asks the launcher. In a job with fixed ranks it does nothing.
        """
        member = job.world.member
        if member is not None and _of_first(member.is_wanted_elsewhere):
            raise HostsUpdatedInterrupt(skip_sync=False)

    def save(self) -> None:
        """Keeps a copy of everything."""
        raise NotImplementedError

    def restore(self) -> None:
        """Takes back what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes everything equal on all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """What else has to happen when ranks have joined again; does nothing by default."""


class ObjectState(State):
    """State in attributes of any kind that can be copied and pickled.

    >>> state = ObjectState(lambda obj, **_: obj, lambda: 0, batch=0)
    >>> state.batch = 5
    >>> state.commit()
    >>> state.batch = 9
    >>> state.restore()
    >>> state.batch
    5
    """

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state = kwargs
        self._take()

    def save(self) -> None:
        """Keeps a copy of the attributes."""
        values = {name: getattr(self, name) for name in self._saved_state}
        self._saved_state = copy.deepcopy(values)

    def restore(self) -> None:
        """Takes back the attributes that were saved last."""
        self._take()

    def sync(self) -> None:
        """Gives all ranks the attributes of rank 0."""
        if self._saved_state:
            values = {name: getattr(self, name) for name in self._saved_state}
            self._saved_state = self._bcast_object(values)
            self._take()

    def _take(self) -> None:
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """A function of a state and further arguments, which is called again after a failure.

    >>> state, tries = ObjectState(lambda obj, **_: obj, lambda: 0, batch=0), []
    >>> def train(state):
    ...     tries.append(state.batch)
    ...     state.batch += 1
    ...     if len(tries) == 1:
    ...         state.commit()
    ...         state.batch = 17
    ...         raise Error("a rank has left")
    ...     return state.batch
    >>> run_fn(train, lambda: None)(state), tries
    (2, [0, 1])
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        failures, commits, skip_sync = 0, state._commits, False
        with _notices():
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    _hold()
                    state._is_run = True
                    return func(state, *args, **kwargs)
                except CallAgain:
                    skip_sync = True
                    continue
                except HostsUpdatedInterrupt as update:
                    skip_sync = update.skip_sync
                except Exception as error:
                    failure = _failure_in(error)
                    if not _has_lost(failure):
                        failures = failures + 1 if state._commits == commits else 1
                    if failures == PATIENCE:
                        raise failure from (error.__cause__ if failure is error else error)
                    commits, skip_sync = state._commits, False
                    job.world.blames = failure.rank
                    state.restore()
                finally:
                    state._is_run = False
                reset()
                state.on_reset()

    return wrapper


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A training function whose first argument is a state, and which survives failures.

    The state is made equal on all ranks before the function is called. When a collective fails,
    ranks take back what they committed last, join the job again, and the function is called again.
    Three failures without a commit between them are raised, unless a rank was lost each time.

    In an elastic job, SIGTERM and SIGUSR1 make a worker leave at its next commit.
    """
    return run_fn(func, _join_again)


def _join_again() -> None:
    shutdown()
    try:
        init()
    except JobOver:
        raise
    except RuntimeError as error:
        raise Error(
            f"after a failure the ranks could not come together again: {error}\n"
            "hint: a rank that is gone is not replaced, unless the job is started with "
            "`sirtaki run --min-ranks`; restart the job, from a checkpoint"
        ) from error


def failed(text: str, refused: bool) -> Error:
    """An error with the engine's words, for those that came as a framework's exception.

    >>> failed('"loss" was not done: rank 2 on b is gone: it was killed', False).rank
    2
    """
    error = Error(text)
    named = re.search(r"was not done: rank (\d+)\b", text)
    error.rank, error.refused = int(named[1]) if named else None, refused
    return error


def _failure_in(error: Exception) -> Error:
    """The failure of a collective that an exception is about; raises it if there is none."""
    if isinstance(error, Error):
        if isinstance(error, JobOver):
            raise error
        return error
    for translate in job.world.translations:
        found = translate(error)
        if found is not None:
            return found
    raise error


def _has_lost(error: Error) -> bool:
    """Whether the others go on without the rank that is lost, as the launcher decides."""
    return job.world.member is not None and error.rank is not None and not error.refused


def _hold() -> None:
    """This process has the state from now on."""
    if job.world.member is not None:
        job.world.member.hold()


def _of_first(ask: Callable[[], bool]) -> bool:
    """What rank 0 answers, on all ranks."""
    answer = bytearray([ask() if job.rank() == 0 else False])
    if job.size() > 1:
        views.collectives.spread(
            memoryview(answer), 0, "elastic.change", global_process_set, waits=True
        ).wait()
    return bool(answer[0])


@contextlib.contextmanager
def _notices() -> Iterator[None]:
    """Until the end, signals by which schedulers announce an end make this worker leave."""
    member = job.world.member
    if member is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    chosen = [
        number
        for number in (signal.SIGTERM, signal.SIGUSR1)
        if signal.getsignal(number) == signal.SIG_DFL
    ]

    def leave(*_: Any) -> None:
        with contextlib.suppress(Error):
            member.leave()

    for number in chosen:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in chosen:
            signal.signal(number, signal.SIG_DFL)
