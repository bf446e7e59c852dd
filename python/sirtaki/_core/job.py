"""A process's place in its job."""

from __future__ import annotations

import atexit
import itertools
import os
from collections import defaultdict
from typing import Any

from sirtaki import _variables
from sirtaki._errors import Error
from sirtaki._native import Engine, Member, Phase, serve

NOT_INITIALIZED = "Sirtaki has not been initialized; use init()."


class InFlight:
    """Names in use, each with a ticket that tells whether it still is."""

    def __init__(self) -> None:
        self._tickets: dict[Any, Any] = {}
        self._limit = 64

    def __contains__(self, name: Any) -> bool:
        ticket = self._tickets.get(name)
        return ticket is not None and not ticket.poll()

    def add(self, name: Any, ticket: Any) -> None:
        """Marks a name as in use."""
        self._tickets[name] = ticket
        if len(self._tickets) > self._limit:
            # From time to time, so that programs may use as many names as they like.
            tickets = self._tickets.items()
            self._tickets = {name: ticket for name, ticket in tickets if not ticket.poll()}
            self._limit = 64 + 2 * len(self._tickets)

    def clear(self) -> None:
        """Forgets all names."""
        self._tickets.clear()

    def __len__(self) -> int:
        return len(self._tickets)


class _World:
    """The one job of this process: there is no other global state."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.member: Member | None = None
        """This process in a job whose workers come and go."""
        self.blames: int | None = None
        """The rank of the last round that was waited for in vain."""
        self.rounds = 0
        self.forked = False
        self.counters: dict = defaultdict(itertools.count)
        self.in_flight = InFlight()
        """The names that users gave to tensors that are not done."""
        self.sets: dict = {}
        self.next_set = 1
        self.leaving: list = []
        """Functions that are called before the engine ends."""
        self.arriving: list = []
        """Functions that are called when this process has joined and has a new engine."""
        self.translations: list = []
        """How front ends recognise failed collectives: functions from an exception of their
        framework's to an ``Error``, or ``None`` if it is about something else."""
        self.phase: Phase | None = None
        self.sees_steps = False


world = _World()


def _after_fork() -> None:
    """The child is not a rank, and cannot use its copy of the engine."""
    if world.engine is not None:
        world.forked = True


os.register_at_fork(after_in_child=_after_fork)


def engine() -> Engine:
    """The engine over all ranks."""
    if world.forked:
        raise Error(
            f"process {os.getpid()} was forked from a rank and is not one itself\n"
            "hint: start processes with multiprocessing's `spawn`, or call init() after the fork; "
            "workers that only load data need neither"
        )
    if world.engine is None:
        raise ValueError(NOT_INITIALIZED)
    return world.engine


def start(defaults: dict[str, str] | None = None, timeout: float | None = None) -> bool:
    """Joins the job; says whether that was new.

    ``defaults`` are variables for those that the environment lacks; usually those translated from
    Horovod's. The other ranks have ``timeout`` seconds to join, or as long as the launcher says. A
    process that ``sirtaki run --servers`` started as a server serves the ranks and exits.
    """
    if world.forked:
        engine()
    if world.engine is not None:
        return False
    defaults = _variables.translated() if defaults is None else defaults
    if serve(defaults):
        # This process was started as a server, and the ranks that it served are done.
        raise SystemExit(0)
    if world.rounds == 0 and os.environ.get("SIRTAKI_MEMBER"):
        world.member = Member.find(defaults)
    if world.member is None:
        world.engine = Engine.join_job(defaults, world.rounds, timeout)
    else:
        blames, world.blames = world.blames, None
        world.engine = world.member.join(defaults, blames)
    world.engine.publish(0)
    if world.engine.rank == 0:
        _variables.warn_about_others()
    if world.rounds == 0:
        atexit.register(shutdown)
    world.rounds += 1
    for arrive in list(world.arriving):
        arrive()
    return True


def is_elastic() -> bool:
    """Whether ranks may come and go while this process runs."""
    return world.member is not None


def round_number() -> int:
    """How often ranks have come together; the same on all of them."""
    return world.rounds if world.member is None else world.member.round


def shutdown() -> None:
    """Leaves the job, on all ranks. Unfinished requests fail; ``init`` may be called again.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.shutdown()
    >>> hvd.is_initialized()
    False
    """
    if world.engine is None or world.forked:
        return
    for leave in list(world.leaving):
        leave()
    for process_set in list(world.sets.values()):
        process_set._invalidate()
    leave_phase()
    world.engine.close()
    world.engine = None
    world.sets.clear()
    world.counters.clear()
    world.in_flight.clear()
    world.next_set = 1


def enter_phase(name: str) -> None:
    """Notes that this process begins a part of a training step, which ends the previous one."""
    leave_phase()
    if world.engine is not None and is_initialized():
        world.phase = world.engine.phase(name)


def leave_phase() -> None:
    """Notes that this process is in none of the marked parts of a training step."""
    left, world.phase = world.phase, None
    if left is not None:
        left.end()


def is_initialized() -> bool:
    """Whether this process is in a job.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.is_initialized()
    True
    """
    return world.engine is not None and not world.forked


def rank() -> int:
    """Which process of the job this is.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.rank() < hvd.size()
    True
    """
    return engine().rank


def size() -> int:
    """How many processes the job has.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.size() == hvd.local_size() * hvd.cross_size() or not hvd.is_homogeneous()
    True
    """
    return engine().size


def local_rank() -> int:
    """Which process of its host this is.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.local_rank() < hvd.local_size()
    True
    """
    return engine().local[0]


def local_size() -> int:
    """How many processes of the job its host has."""
    return engine().local[1]


def cross_rank() -> int:
    """Which host of the job this is.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.cross_rank() < hvd.cross_size()
    True
    """
    return engine().cross[0]


def cross_size() -> int:
    """How many hosts the job has."""
    return engine().cross[1]


def is_homogeneous() -> bool:
    """Whether every host has the same number of processes."""
    return engine().homogeneous
