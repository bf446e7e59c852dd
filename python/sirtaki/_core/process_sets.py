"""Subsets of a job's ranks, which run their own collectives alongside those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sirtaki._core import job
from sirtaki._errors import Error
from sirtaki._native import Engine


class ProcessSet:
    """Ranks that run collectives together. Pass it to ``add_process_set`` or to ``init``.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> alone = hvd.add_process_set(hvd.ProcessSet([0])) if hvd.size() > 1 else None
    """

    process_set_id: int | None = None
    ranks: list[int]
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        try:
            ranks = list(ranks_or_comm)
        except TypeError:
            raise ValueError(
                "a process set is made from a list of ranks; MPI communicators are not supported"
            ) from None
        self.ranks = _checked(ranks)
        self._engine: Engine | None = None

    def _invalidate(self) -> None:
        engine, self._engine, self.process_set_id = self._engine, None, None
        if engine is not None:
            engine.close()

    def engine(self) -> Engine:
        """What runs the collectives of this set."""
        if self.process_set_id is None:
            raise ValueError("the process set was not added, or it was removed")
        if self._engine is None:
            raise Error(f"rank {job.rank()} is not in the process set of ranks {self.ranks}")
        return self._engine

    def size(self) -> int | None:
        """How many ranks it has; ``None`` until it is added."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """Which rank of the set this process is; ``None`` until it is added."""
        return None if self.process_set_id is None else self.engine().rank

    def included(self) -> bool:
        """Whether this process is in it."""
        return job.rank() in self.ranks

    def root(self, root_rank: int) -> int:
        """The rank in the set of a rank of the job."""
        if root_rank not in self.ranks:
            raise Error(f"root_rank {root_rank} is not in the process set of ranks {self.ranks}")
        return self.ranks.index(root_rank)

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    """All ranks, whatever the job."""

    process_set_id = 0

    def __init__(self) -> None:
        self._engine = None

    @property
    def ranks(self) -> list[int]:  # type: ignore[override]
        return list(range(job.size())) if job.is_initialized() else []

    def _invalidate(self) -> None:
        pass

    def engine(self) -> Engine:
        return job.engine()

    def size(self) -> int:
        return job.size()

    def rank(self) -> int:
        return job.rank()

    def included(self) -> bool:
        return True

    def root(self, root_rank: int) -> int:
        return root_rank


global_process_set = _GlobalProcessSet()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a process set; all ranks of the job call it, in the same order.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> if hvd.size() > 1:
    ...     even = hvd.add_process_set(range(0, hvd.size(), 2))
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    engine = job.engine()
    known = [global_process_set, *job.world.sets.values()]
    if any(process_set.ranks == other.ranks for other in known):
        raise ValueError(f"there is a process set of the same ranks already: {process_set}")
    number = job.world.next_set
    process_set._engine = engine.process_set(f"process_set.{number}", process_set.ranks).wait()
    if process_set._engine is not None:
        process_set._engine.publish(number)
    job.world.next_set += 1
    process_set.process_set_id = number
    job.world.sets[number] = process_set
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set; all ranks of the job call it. Says whether there was one.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.remove_process_set(hvd.ProcessSet([0]))
    False
    """
    number = process_set.process_set_id
    if not number:
        return False
    # No rank leaves while others are still using the set.
    job.engine().barrier(f"remove_process_set.{number}").wait()
    del job.world.sets[number]
    process_set._invalidate()
    return True


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job that this process was started for, with all other ranks.

    If no launcher started the process, it is a job of one rank. ``process_sets`` are added at
    once.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.is_initialized()
    True
    """
    if comm is not None and not (isinstance(comm, (list, tuple)) and not comm):
        raise ValueError("comm is not supported; use process sets for some of the ranks")
    if not job.start():
        return
    if process_sets is None or isinstance(process_sets, str):
        return
    for process_set in process_sets:
        add_process_set(process_set)


def _checked(ranks: Sequence[int]) -> list[int]:
    """Ranks in ascending order, checked."""
    ranks = sorted(ranks)
    if any(not isinstance(rank, int) for rank in ranks):
        raise ValueError("a process set is made from ranks, which are integers")
    return ranks
