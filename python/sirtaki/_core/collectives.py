"""Submitting tensors to the engine: what all forms of the collectives have in common.

Mistakes that one rank can detect by itself are raised here, before other ranks are involved.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sirtaki._core import job, operations
from sirtaki._core.adapter import Adapter, Start, Tensors, hand_in, hand_in_for_new
from sirtaki._core.handle import Handle
from sirtaki._core.names import name_for
from sirtaki._core.operations import OPERATIONS, Adasum, Scale
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki._errors import Error


def single(handle: Handle) -> Handle:
    """The handle of a single tensor, whose result is that tensor and not a list."""
    return handle.map(lambda results: results[0])


class Collectives:
    """All collectives for the tensors of one framework; each returns a handle.

    With ``waits`` the caller promises to wait at once.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def reduce_in_place(
        self,
        tensors: Tensors,
        name: str | None,
        op: int,
        scale: Scale,
        process_set: ProcessSet,
        wire: str | None = None,
        waits: bool = False,
        returns: Tensors | None = None,
    ) -> Handle:
        """All-reduces tensors in place; ``returns`` are the objects to return for them."""
        check = self.adapter.check
        for tensor in tensors:
            check(tensor, False)
        if op == Adasum:
            operations.check_adasum(process_set)
        scale = self.rounded(scale, tensors)
        full = name_for("allreduce", name, process_set.process_set_id, waits)
        start = partial(_start_reduction, process_set.engine(), full, op, scale, wire)
        handle = _registered(self._reduce(wire, op, start, tensors), name, full, process_set)
        if returns is not None:
            return handle.map(lambda _: list(returns))
        return handle

    def _reduce(self, wire: str | None, op: int, start: Start, tensors: Tensors) -> Handle:
        return hand_in(self.adapter, start, tensors)

    def rounded(self, scale: Scale, tensors: Tensors) -> Scale:
        """Factors in the precision of the product: single, for tensors of at most that."""
        if scale == (1.0, 1.0) or not all(map(self.adapter.is_single, tensors)):
            return scale
        return operations.single(scale)

    def gather(
        self,
        tensors: Tensors,
        name: str | None,
        process_set: ProcessSet,
        waits: bool,
        of_all: bool = True,
    ) -> Handle:
        """Gathers the rows of all ranks, of several tensors together.

        With ``of_all`` it fails once a rank has joined; otherwise that rank contributes no rows.
        """
        for tensor in tensors:
            self.adapter.check(tensor, True)
        # A scalar counts as one row.
        rows = [tensor if len(tensor.shape) else tensor.reshape(1) for tensor in tensors]
        full = name_for("allgather", name, process_set.process_set_id, waits)
        start = partial(_start_gather, process_set.engine(), full, of_all)
        handle = hand_in_for_new(self.adapter, start, rows, _without_rows)
        return _registered(handle, name, full, process_set)

    def spread(
        self, tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet, waits: bool
    ) -> Handle:
        """Replaces a tensor by that of ``root_rank``, in place."""
        self.adapter.check(tensor, True)
        engine, root = process_set.engine(), process_set.root(root_rank)
        full = name_for("broadcast", name, process_set.process_set_id, waits)
        start = partial(_start_broadcast, engine, full, root)
        handle = hand_in(self.adapter, start, [tensor])
        return single(_registered(handle, name, full, process_set))

    def exchange(
        self, tensor: Any, splits: Any, name: str | None, process_set: ProcessSet, waits: bool
    ) -> Handle:
        """Sends rows to other ranks; the result is the rows received, and how many from each."""
        self.adapter.check(tensor, True)
        engine = process_set.engine()
        there = tensor.shape[0] if len(tensor.shape) else 1
        rows = operations.splits(there, self.adapter.splits(splits), engine.size)
        if len(tensor.shape) and sum(rows) < there:
            # Rows that go to no rank stay here.
            tensor = tensor[: sum(rows)]
        full = name_for("alltoall", name, process_set.process_set_id, waits)
        start = partial(_start_exchange, engine, full, rows)

        def build(made: list) -> tuple[Any, Any]:
            [(received, counts)] = made
            return received, self.adapter.counts(counts, splits)

        handle = hand_in_for_new(self.adapter, start, [tensor], build)
        return _registered(handle, name, full, process_set)

    def scatter(
        self,
        tensors: Tensors,
        name: str | None,
        op: int,
        scale: Scale,
        process_set: ProcessSet,
        waits: bool,
    ) -> Handle:
        """Reduces tensors; every rank gets its share of the rows."""
        operations.check_scatter("reducescatter", op)
        for tensor in tensors:
            self.adapter.check(tensor, False)
            if not len(tensor.shape):
                raise Error("a number has no rows to scatter\nhint: use allreduce")
        scale = self.rounded(scale, tensors)
        full = name_for("reducescatter", name, process_set.process_set_id, waits)
        start = partial(_start_scatter, process_set.engine(), full, op, scale)
        copies = [self.adapter.copied(tensor) for tensor in tensors]
        handle = hand_in_for_new(self.adapter, start, copies, _without_rows)
        return _registered(handle, name, full, process_set)


def _registered(handle: Handle, name: str | None, full: str, process_set: ProcessSet) -> Handle:
    """Remembers a name given by a user, which is in use until the tensor is done."""
    if name is not None:
        job.world.in_flight.add((full, process_set.process_set_id), handle.ticket)
    return handle


def _without_rows(made: list) -> list:
    return [tensor for tensor, _ in made]


def _start_reduction(
    engine: Any, name: str, op: int, scale: Scale, wire: str | None, described: list
) -> Any:
    return engine.all_reduce(name, described, OPERATIONS[op], scale[0], scale[1], wire)


def _start_gather(engine: Any, name: str, of_all: bool, described: list) -> Any:
    return engine.all_gather(name, described, of_all)


def _start_broadcast(engine: Any, name: str, root: int, described: list) -> Any:
    return engine.broadcast(name, described, root)


def _start_exchange(engine: Any, name: str, splits: list[int], described: list) -> Any:
    return engine.all_to_all(name, described[0], splits)


def _start_scatter(engine: Any, name: str, op: int, scale: Scale, described: list) -> Any:
    return engine.reduce_scatter(name, described, OPERATIONS[op], scale[0], scale[1])


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once all ranks have called it.

    >>> import sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    name = name_for("barrier", None, process_set.process_set_id, waits=True)
    process_set.engine().barrier(name).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data and helps the others until all have said so.

    Returns the last rank to say it.

    >>> import sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.join() in range(hvd.size())
    True
    """
    return job.engine().join().wait()
