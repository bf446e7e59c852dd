"""Training that goes on after a failure: state that is saved, restored and made equal.

After a failed collective, all ranks go back to what they committed last; then they leave the job,
join it again and go on. The ranks of a job stay the same from its start to its end: hosts that
come and go are refused with a hint.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Any, Callable

from sirtaki._core.job import shutdown
from sirtaki._core.process_sets import init
from sirtaki._errors import Error

PATIENCE = 3
"""This many failures without a commit between them are too many."""

FIXED = (
    "the ranks of this job cannot change while it runs\n"
    "hint: restart the job with other hosts, from a checkpoint"
)


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818
    """Raised by a training function that wants all ranks to leave and join again.

    With ``skip_sync`` the state is not made equal afterwards.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class State:
    """The state of a training. Subclasses say how to save, restore and synchronize it."""

    _commits = 0

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
        """Hosts that come or go are refused: the job has the ranks that it was started with."""
        raise Error(FIXED)

    def commit(self) -> None:
        """Saves everything in memory; it is restored after a failure."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Finds nothing new: hosts of a running job do not change."""

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
        while True:
            try:
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except Error:
                failures = failures + 1 if state._commits == commits else 1
                if failures == PATIENCE:
                    raise
                commits, skip_sync = state._commits, False
                state.restore()
            except HostsUpdatedInterrupt as update:
                skip_sync = update.skip_sync
            reset()
            state.on_reset()

    return wrapper


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A training function whose first argument is a state, and which survives failures.

    The state is made equal on all ranks before the function is called. When a collective fails,
    ranks take back what they committed last, join the job again, and the function is called again.
    Three failures without a commit between them are raised.
    """
    return run_fn(func, _join_again)


def _join_again() -> None:
    shutdown()
    try:
        init()
    except RuntimeError as error:
        raise Error(
            f"after a failure the ranks could not come together again: {error}\n"
            "hint: a rank that is gone is not replaced; restart the job, from a checkpoint"
        ) from error
