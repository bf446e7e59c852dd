"""Collectives that wait for their result, with gradients.

The gradient of a collective is a collective; ``torch.autograd`` is given the functions of this
file. A tensor that needs no gradient goes straight to the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sirtaki._core import job
from sirtaki._core.operations import Average, Sum, operation
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.torch import _submit
from sirtaki.torch.compression import Compression, travels_as

Tensors = Sequence[torch.Tensor]


def _follows(*tensors: torch.Tensor) -> bool:
    """Whether a gradient may be needed."""
    return torch.is_grad_enabled() and any(
        getattr(tensor, "requires_grad", False) for tensor in tensors
    )


class _AllReduce(torch.autograd.Function):
    """Several tensors, reduced together; their gradients are, too."""

    @staticmethod
    def forward(ctx: Any, how: tuple, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.how = how
        return tuple(_all_reduce(how, tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        _, op, scale, process_set, wire = ctx.how
        return (None, *_all_reduce((None, op, scale, process_set, wire), gradients))


def _all_reduce(how: tuple, tensors: Tensors) -> list[torch.Tensor]:
    name, op, scale, process_set, wire = how
    copies = [_submit.copied(tensor) for tensor in tensors]
    handle = _submit.reduce_in_place(copies, name, op, scale, process_set, wire, waits=True)
    return handle.wait()


def _reduced(tensors: Tensors, compression: Any, how: tuple) -> list[torch.Tensor]:
    wires = {travels_as(compression, tensor) for tensor in tensors}
    if len(wires) == 1 and (wire := wires.pop()):
        return _apply(_AllReduce, _all_reduce, (*how, wire), tensors)
    smaller = [compression.compress(tensor) for tensor in tensors]
    reduced = _apply(_AllReduce, _all_reduce, (*how, None), [tensor for tensor, _ in smaller])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, smaller)]


def _apply(function: Any, plain: Any, how: tuple, tensors: Tensors) -> list[torch.Tensor]:
    if _follows(*tensors):
        return list(function.apply(how, *tensors))
    return plain(how, tensors)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The reduction of a tensor over all ranks; the default is the average.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.allreduce(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return _reduced([tensor], compression, (name, op, scale, process_set))[0]


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over all ranks in place.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> gradient = torch.ones(2)
    >>> hvd.allreduce_(gradient) is gradient
    True
    """
    return grouped_allreduce_(
        [tensor], average, name, op, prescale_factor, postscale_factor, process_set
    )[0]


def grouped_allreduce(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """The reductions of several tensors, done together.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.grouped_allreduce([torch.ones(1), torch.zeros(2)])
    [tensor([1.]), tensor([0., 0.])]
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return _reduced(tensors, compression, (name, op, scale, process_set))


def grouped_allreduce_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors together, in place.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> tensors = [torch.ones(1), torch.zeros(2)]
    >>> hvd.grouped_allreduce_(tensors)[1] is tensors[1]
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    handle = _submit.reduce_in_place(
        tensors, name, op, scale, process_set, waits=True, returns=tensors
    )
    return handle.wait()


class _AllGather(torch.autograd.Function):
    """The gradient of a rank's input is the average of its rows in all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, how: tuple, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.process_set = how[1]
        ctx.shapes = [tensor.shape for tensor in tensors]
        return tuple(_all_gather(how, tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        process_set = ctx.process_set
        rows = torch.tensor([[shape[0] if shape else 1 for shape in ctx.shapes]])
        all_rows = _all_gather((None, process_set), [rows])[0]
        offsets = all_rows[: process_set.rank()].sum(0).tolist()
        how = (None, Average, (1.0, 1.0), process_set, None)
        reduced = _all_reduce(how, gradients)
        parts = zip(reduced, offsets, rows[0].tolist(), ctx.shapes)
        mine = [whole.narrow(0, at, count).reshape(shape) for whole, at, count, shape in parts]
        return (None, *mine)


def _all_gather(how: tuple, tensors: Tensors) -> list[torch.Tensor]:
    return _submit.gather(tensors, how[0], how[1], waits=True).wait()


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The rows of all ranks, one after another; ranks may have different numbers of them.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.allgather(torch.tensor([[hvd.rank()]])).shape == (hvd.size(), 1)
    True
    """
    return _apply(_AllGather, _all_gather, (name, process_set), [tensor])[0]


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Gathers several tensors together.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> [len(rows) // hvd.size() for rows in hvd.grouped_allgather([torch.ones(1), torch.ones(2)])]
    [1, 2]
    """
    return _apply(_AllGather, _all_gather, (name, process_set), tensors)


class _Broadcast(torch.autograd.Function):
    """All gradients go to the root; the inputs of other ranks have no influence."""

    @staticmethod
    def forward(ctx: Any, how: tuple, tensor: torch.Tensor) -> tuple[torch.Tensor]:
        ctx.how = how
        return tuple(_broadcast(how, [tensor]))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        root_rank, _, process_set = ctx.how
        how = (None, Average, (1.0, 1.0), process_set, None)
        reduced = _all_reduce(how, [gradient])[0]
        return None, reduced if job.rank() == root_rank else reduced.zero_()


def _broadcast(how: tuple, tensors: Tensors) -> list[torch.Tensor]:
    root_rank, name, process_set = how
    copy = _submit.copied(tensors[0])
    return [_submit.spread(copy, root_rank, name, process_set, waits=True).wait()]


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The tensor of ``root_rank``.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.broadcast(torch.tensor([3.0]), root_rank=0)
    tensor([3.])
    """
    return _apply(_Broadcast, _broadcast, (root_rank, name, process_set), [tensor])[0]


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replaces a tensor by that of ``root_rank``, in place.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> weight = torch.ones(2)
    >>> hvd.broadcast_(weight, root_rank=0) is weight
    True
    """
    _submit.spread(tensor, root_rank, name, process_set, waits=True).wait()
    return tensor


class _AllToAll(torch.autograd.Function):
    """Gradients are sent back the way the rows came."""

    @staticmethod
    def forward(ctx: Any, how: tuple, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        received, counts = _all_to_all(how, [tensor])
        ctx.process_set, ctx.counts, ctx.shape = how[2], counts, tensor.shape
        ctx.mark_non_differentiable(counts)
        return received, counts

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple:
        sent = _all_to_all((ctx.counts, None, ctx.process_set), [gradient])[0]
        # Rows that went to no rank have no influence.
        return None, torch.cat([sent, sent.new_zeros(ctx.shape[0] - len(sent), *ctx.shape[1:])])


def _all_to_all(how: tuple, tensors: Tensors) -> list[torch.Tensor]:
    splits, name, process_set = how
    return list(_submit.exchange(tensors[0], splits, name, process_set, waits=True).wait())


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends ``splits[i]`` rows to rank ``i``; without splits, the same number to each rank.

    Returns the rows received; with splits, also how many came from each rank.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> rows, counts = hvd.alltoall(torch.ones(2 * hvd.size()), [2] * hvd.size())
    >>> counts.tolist() == [2] * hvd.size()
    True
    """
    received, counts = _apply(_AllToAll, _all_to_all, (splits, name, process_set), [tensor])
    return received if splits is None else (received, counts)


class _ReduceScatter(torch.autograd.Function):
    """The rows of all ranks are gathered again, and weighted as the sum was."""

    @staticmethod
    def forward(ctx: Any, how: tuple, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.how = how
        return tuple(_reduce_scatter(how, tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        _, op, scale, process_set = ctx.how
        factor = scale[0] * scale[1] * (process_set.size() if op == Sum else 1)
        weighted = [gradient * factor for gradient in gradients]
        return (None, *_all_gather((None, process_set), weighted))


def _reduce_scatter(how: tuple, tensors: Tensors) -> list[torch.Tensor]:
    name, op, scale, process_set = how
    return _submit.scatter(tensors, name, op, scale, process_set, waits=True).wait()


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor over all ranks and returns this rank's share of the rows.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(torch.ones(hvd.size(), 2), op=hvd.Average)
    tensor([[1., 1.]])
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces several tensors together and returns this rank's share of the rows of each.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.grouped_reducescatter([torch.ones(hvd.size()), torch.zeros(hvd.size())])
    [tensor([1.]), tensor([0.])]
    """
    how = (name, op, (prescale_factor, postscale_factor), process_set)
    smaller = [compression.compress(tensor) for tensor in tensors]
    parts = _apply(_ReduceScatter, _reduce_scatter, how, [tensor for tensor, _ in smaller])
    return [compression.decompress(part, ctx) for part, (_, ctx) in zip(parts, smaller)]
