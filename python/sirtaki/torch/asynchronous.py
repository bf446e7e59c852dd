"""Collectives that return at once: a handle now, the result from ``synchronize``."""

from __future__ import annotations

from typing import Any

import torch

from sirtaki._core.collectives import barrier, join, single
from sirtaki._core.handle import Handle, poll, synchronize
from sirtaki._core.operations import Average, operation
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.torch._submit import (
    Tensors,
    copied,
    exchange,
    gather,
    reduce_in_place,
    scatter,
    spread,
)

__all__ = [
    "allgather_async",
    "allreduce_async",
    "allreduce_async_",
    "alltoall_async",
    "barrier",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather_async",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter_async",
    "synchronize",
]


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces a tensor over all ranks into a new one; the default is the average.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async(torch.tensor([1.0, 2.0]), op=hvd.Max)
    >>> hvd.synchronize(handle)
    tensor([1., 2.])
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return single(reduce_in_place([copied(tensor)], name, op, scale, process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces a tensor over all ranks in place.

    Do not read, change or resize it before ``synchronize``: other threads use its memory.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> gradient = torch.ones(2)
    >>> handle = hvd.allreduce_async_(gradient)
    >>> hvd.synchronize(handle) is gradient
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return single(reduce_in_place([tensor], name, op, scale, process_set, returns=[tensor]))


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces tensors together into new ones.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> handle = hvd.grouped_allreduce_async([torch.ones(1), torch.zeros(2)])
    >>> hvd.synchronize(handle)
    [tensor([1.]), tensor([0., 0.])]
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return reduce_in_place([copied(tensor) for tensor in tensors], name, op, scale, process_set)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces tensors together in place.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> tensors = [torch.ones(1), torch.zeros(2)]
    >>> done = hvd.synchronize(hvd.grouped_allreduce_async_(tensors))
    >>> done[0] is tensors[0]
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return reduce_in_place(tensors, name, op, scale, process_set, returns=tensors)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Puts the rows of all ranks one after another; ranks may have different numbers of them.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> rows = hvd.synchronize(hvd.allgather_async(torch.ones(2, 3)))
    >>> rows.shape == (2 * hvd.size(), 3)
    True
    """
    return single(gather([tensor], name, process_set, waits=False))


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Gathers several tensors together.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> handle = hvd.grouped_allgather_async([torch.ones(1), torch.ones(2)])
    >>> [len(rows) // hvd.size() for rows in hvd.synchronize(handle)]
    [1, 2]
    """
    return gather(tensors, name, process_set, waits=False)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """The tensor of ``root_rank`` in a new one.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.synchronize(hvd.broadcast_async(torch.ones(2), root_rank=0))
    tensor([1., 1.])
    """
    return spread(copied(tensor), root_rank, name, process_set, waits=False)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Replaces a tensor by that of ``root_rank``, in place.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> weight = torch.ones(2)
    >>> hvd.synchronize(hvd.broadcast_async_(weight, root_rank=0)) is weight
    True
    """
    return spread(tensor, root_rank, name, process_set, waits=False).map(lambda _: tensor)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Sends ``splits[i]`` rows to rank ``i``; the result is what arrived and how many from each.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> handle = hvd.alltoall_async(torch.ones(hvd.size()), [1] * hvd.size())
    >>> rows, counts = hvd.synchronize(handle)
    >>> rows.sum() == hvd.size(), counts.sum() == hvd.size()
    (tensor(True), tensor(True))
    """
    return exchange(tensor, splits, name, process_set, waits=False)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces a tensor and gives every rank its share of the rows, the first ranks one more.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> handle = hvd.reducescatter_async(torch.ones(hvd.size(), 2), op=hvd.Average)
    >>> hvd.synchronize(handle)
    tensor([[1., 1.]])
    """
    scale = (prescale_factor, postscale_factor)
    return single(scatter([tensor], name, op, scale, process_set, waits=False))


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces several tensors together and gives every rank its share of the rows of each.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> tensors = [torch.ones(hvd.size()), torch.zeros(hvd.size())]
    >>> hvd.synchronize(hvd.grouped_reducescatter_async(tensors))
    [tensor([1.]), tensor([0.])]
    """
    scale = (prescale_factor, postscale_factor)
    return scatter(tensors, name, op, scale, process_set, waits=False)
