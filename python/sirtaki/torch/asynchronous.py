"""Collectives that return at once: a handle now, the result from ``synchronize``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from sirtaki import _common
from sirtaki._common import OPERATIONS, Adasum, Average, name_for
from sirtaki._process_sets import ProcessSet, global_process_set
from sirtaki.torch import _carry
from sirtaki.torch._carry import Handle

Tensors = Sequence[torch.Tensor]


def synchronize(handle: Any) -> Any:
    """Waits for a handle and returns its result; ``None`` if somebody has waited before.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.synchronize(hvd.allreduce_async(torch.ones(2), op=hvd.Average))
    tensor([1., 1.])
    """
    return handle.wait() if isinstance(handle, Handle) else None


def poll(handle: Handle) -> bool:
    """Whether ``synchronize`` would return at once."""
    return handle.poll()


def _one(handle: Handle) -> Handle:
    """The handle of a single tensor gives that and not a list."""
    finish = handle._finish
    handle._finish = lambda result: finish(result)[0]
    return handle


def check_adasum(process_set: ProcessSet) -> None:
    """Fails where Adasum cannot be had."""
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum needs all ranks; process sets are not supported")
    size = _common.size()
    if size & (size - 1):
        raise NotImplementedError(f"Adasum needs a power of two of ranks, not {size}")


def reduce_in_place(
    tensors: Tensors,
    name: str | None,
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    wire: str | None = None,
    waits: bool = False,
    returns: Tensors | None = None,
) -> Handle:
    """All-reduces tensors where they are; ``returns`` are the objects to return for them."""
    for tensor in tensors:
        _carry.check(tensor, moves=False)
    if op == Adasum:
        check_adasum(process_set)
    full = name_for("allreduce", name, process_set.process_set_id, waits)
    start = partial(_start_reduction, process_set.engine(), full, op, scale, wire)
    handle = _carry.hand_in(start, tensors, moves=False)
    return handle if returns is None else handle.then(lambda: list(returns))


def _start_reduction(
    engine: Any, name: str, op: int, scale: tuple[float, float], wire: str | None, described: list
) -> Any:
    return engine.all_reduce(name, described, OPERATIONS[op], scale[0], scale[1], wire)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided:
        return tensor
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces a tensor over all ranks into a new one; the default is the average."""
    op, scale = _common.operation(op, average), (prescale_factor, postscale_factor)
    return _one(reduce_in_place([_copy(tensor)], name, op, scale, process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces a tensor over all ranks where it is. Leave it alone until ``synchronize``."""
    op, scale = _common.operation(op, average), (prescale_factor, postscale_factor)
    return _one(reduce_in_place([tensor], name, op, scale, process_set, returns=[tensor]))


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces tensors together into new ones."""
    op, scale = _common.operation(op, average), (prescale_factor, postscale_factor)
    return reduce_in_place([_copy(tensor) for tensor in tensors], name, op, scale, process_set)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces tensors together where they are."""
    op, scale = _common.operation(op, average), (prescale_factor, postscale_factor)
    return reduce_in_place(tensors, name, op, scale, process_set, returns=tensors)


def gather(tensors: Tensors, name: str | None, process_set: ProcessSet, waits: bool) -> Handle:
    """Gathers the rows of all ranks, of several tensors together."""
    for tensor in tensors:
        _carry.check(tensor, moves=True)
    # A number is a row of one.
    rows = [tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in tensors]
    full = name_for("allgather", name, process_set.process_set_id, waits)
    start = partial(process_set.engine().all_gather, full)
    return _carry.hand_in_for_new(start, rows, lambda made: [tensor for tensor, _ in made])


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Puts the rows of all ranks one after another; ranks may have different numbers of them."""
    return _one(gather([tensor], name, process_set, waits=False))


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Gathers several tensors together."""
    return gather(tensors, name, process_set, waits=False)


def spread(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet, waits: bool
) -> Handle:
    """Replaces a tensor by that of ``root_rank``, where it is."""
    _carry.check(tensor, moves=True)
    engine, root = process_set.engine(), process_set.root(root_rank)
    full = name_for("broadcast", name, process_set.process_set_id, waits)
    start = partial(_start_broadcast, engine, full, root)
    return _one(_carry.hand_in(start, [tensor], moves=True))


def _start_broadcast(engine: Any, name: str, root: int, described: list) -> Any:
    return engine.broadcast(name, described, root)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """The tensor of ``root_rank`` in a new one."""
    return spread(_copy(tensor), root_rank, name, process_set, waits=False)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Replaces a tensor by that of ``root_rank``, where it is."""
    return spread(tensor, root_rank, name, process_set, waits=False).then(lambda: tensor)


def exchange(
    tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet, waits: bool
) -> Handle:
    """Sends rows to other ranks; the result is what came, and how many rows from each."""
    _carry.check(tensor, moves=True)
    engine = process_set.engine()
    rows = _splits(tensor, splits, engine.size)
    full = name_for("alltoall", name, process_set.process_set_id, waits)
    start = partial(_start_exchange, engine, full, rows)
    kind = {"dtype": torch.int32}
    if isinstance(splits, torch.Tensor):
        kind = {"dtype": splits.dtype, "device": splits.device}

    def build(made: list) -> tuple[torch.Tensor, torch.Tensor]:
        [(received, counts)] = made
        return received, torch.tensor(counts, **kind)

    return _carry.hand_in_for_new(start, [tensor], build)


def _start_exchange(engine: Any, name: str, splits: list[int], described: list) -> Any:
    return engine.all_to_all(name, described[0], splits)


def _splits(tensor: torch.Tensor, splits: Any, size: int) -> list[int]:
    rows = tensor.shape[0] if tensor.dim() else 1
    if splits is None or (isinstance(splits, torch.Tensor) and splits.numel() == 0):
        if rows % size:
            raise _common.Error(
                f"{rows} rows cannot be dealt out equally to {size} ranks\nhint: give splits"
            )
        return [rows // size] * size
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"splits must be integers of 32 or 64 bits, not {splits.dtype}")
        splits = splits.tolist()
    splits = [int(split) for split in splits]
    if any(split < 0 for split in splits):
        raise _common.Error(f"splits must not be negative, as in {splits}")
    return splits


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Sends ``splits[i]`` rows to rank ``i``; the result is what came and how many from each."""
    return exchange(tensor, splits, name, process_set, waits=False)


def scatter(
    tensors: Tensors,
    name: str | None,
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    waits: bool,
) -> Handle:
    """Reduces tensors; every rank gets its share of the rows."""
    if op not in (Average, _common.Sum):
        raise NotImplementedError("reducescatter knows the reductions Average and Sum alone")
    for tensor in tensors:
        _carry.check(tensor, moves=False)
        if tensor.dim() == 0:
            raise _common.Error("a number has no rows to scatter\nhint: use allreduce")
    full = name_for("reducescatter", name, process_set.process_set_id, waits)
    start = partial(_start_scatter, process_set.engine(), full, op, scale)
    copies = [_copy(tensor) for tensor in tensors]
    return _carry.hand_in_for_new(start, copies, lambda made: [tensor for tensor, _ in made])


def _start_scatter(
    engine: Any, name: str, op: int, scale: tuple[float, float], described: list
) -> Any:
    return engine.reduce_scatter(name, described, OPERATIONS[op], scale[0], scale[1])


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces a tensor and gives every rank its share of the rows, the first ranks one more."""
    scale = (prescale_factor, postscale_factor)
    return _one(scatter([tensor], name, op, scale, process_set, waits=False))


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces several tensors together and gives every rank its share of the rows of each."""
    scale = (prescale_factor, postscale_factor)
    return scatter(tensors, name, op, scale, process_set, waits=False)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once all ranks have called it."""
    name = name_for("barrier", None, process_set.process_set_id, waits=True)
    process_set.engine().barrier(name).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data and helps the others until all have said so.

    Returns the last rank to say it.
    """
    return _common.engine().join().wait()
