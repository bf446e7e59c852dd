"""Collectives that compute: all-reduce, reduce and reduce-scatter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

import torch
import torch.distributed as dist

from sirtaki.torch import _memory
from sirtaki.torch.distributed.part import Part
from sirtaki.torch.distributed.reductions import Reduction
from sirtaki.torch.distributed.tensors import (
    Tensors,
    deal_out,
    joined,
    real,
    require_one_per_rank,
    require_shares,
)
from sirtaki.torch.distributed.work import Work


class Reducing(Part):
    """The part of a group that reduces."""

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduces tensors in place."""
        op = (opts or dist.AllreduceOptions()).reduceOp
        if any(tensor.is_sparse for tensor in tensors):
            return self._add_sparse(tensors, op)
        return self._reduce(tensors, op)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduces tensors together."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Reduces tensors on the root; those of the others stay as they are."""
        if opts.rootRank != self._rank:
            tensors = [tensor.detach().clone() for tensor in tensors]
        return self._reduce(tensors, opts.reduceOp)

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None
    ) -> Work:
        """Reduces lists with one tensor per rank; every rank gets its own."""
        op = (opts or dist.ReduceScatterOptions()).reduceOp
        [output], [parts] = outputs, inputs
        require_one_per_rank(parts, self._size)
        whole, counts = joined(parts), [part.numel() for part in parts]
        if len(set(counts)) == 1:
            return self._scatter([output], [whole], op)
        own = whole.split(counts)[self._rank]
        return self._reduce([whole], op, lambda: deal_out(own, [output]))

    def _reduce_scatter_base(
        self, output: torch.Tensor, whole: torch.Tensor, opts: Any = None
    ) -> Work:
        """Reduces a tensor; every rank gets its share of the rows."""
        return self.reduce_scatter_tensor_coalesced([output], [whole], opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        """Reduces tensors together; every rank gets its share of the rows of each."""
        op = (opts or dist.ReduceScatterOptions()).reduceOp
        # The engine overwrites what it is given.
        return self._scatter(outputs, [joined([whole]) for whole in inputs], op)

    # Names from PyTorch 2.14 on.
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce(self, tensors: Tensors, op: Any, finish: Callable | None = None) -> Work:
        reduction = _reduction(op, tensors)
        finish = finish or (lambda: list(tensors))
        if reduction.fold is not None:
            return self._fold(reduction.fold, tensors, lambda folded: folded, tensors, finish)
        numbers = [real(tensor) for tensor in tensors]
        _require_known(numbers)

        def start(engine: Any, name: Any) -> Any:
            handle = _memory.hand_in(partial(_all_reduce, engine, name, reduction), numbers)
            return handle.map(lambda _: finish())

        return self._submit("allreduce", tensors, start)

    def _scatter(self, outputs: Tensors, copies: list[torch.Tensor], op: Any) -> Work:
        """``copies`` will be overwritten."""
        for output, whole in zip(outputs, copies):
            require_shares(output, whole, self._size)
        reduction = _reduction(op, copies)
        if reduction.fold is not None:
            rows = [whole.view(self._size, -1) for whole in copies]
            return self._fold(
                reduction.fold, rows, lambda whole: whole[self._rank], outputs, lambda: outputs
            )
        rows = [real(whole).reshape(self._size, -1) for whole in copies]
        _require_known(rows)

        def build(made: list) -> list[torch.Tensor]:
            for output, (share, _) in zip(outputs, made):
                deal_out(share.view(-1), [real(output)])
            return list(outputs)

        def start(engine: Any, name: Any) -> Any:
            return _memory.hand_in_for_new(
                partial(_reduce_scatter, engine, name, reduction), rows, build
            )

        return self._submit("reducescatter", copies, start)

    def _fold(
        self, fold: Callable, tensors: Tensors, own: Callable, outputs: Tensors, finish: Callable
    ) -> Work:
        """Gathers tensors and combines them here; ``own`` is this rank's part of each."""

        def build(made: list) -> list[torch.Tensor]:
            for output, tensor, (rows, _) in zip(outputs, tensors, made):
                whole = fold(rows.view(self._size, *tensor.shape))
                deal_out(own(whole).reshape(-1), [output])
            return list(finish())

        room = [[tensor.numel()] * self._size for tensor in tensors]
        return self._gather(tensors, build, room=room)

    def _add_sparse(self, tensors: Tensors, op: Any) -> Work:
        """Gathers indices and values; equal indices add up."""
        reduction = _reduction(op, tensors)
        if reduction.word not in ("sum", "average") or len(tensors) > 1:
            raise ValueError(
                f"{reduction.name} of {len(tensors)} sparse tensors is not supported\n"
                "hint: add them one by one, or make them dense with to_dense()"
            )
        [tensor] = tensors
        own = tensor.detach().coalesce()
        factor = reduction.before / (self._size if reduction.word == "average" else 1)

        def build(made: list) -> list[torch.Tensor]:
            (places, _), (values, _) = made
            values = values.view(-1, *own.values().shape[1:]) * factor
            places = places.view(-1, own.sparse_dim()).t()
            total = torch.sparse_coo_tensor(places, values, tensor.shape).coalesce()
            # Not into what detach() returns: that is a different sparse tensor.
            with torch.no_grad():
                tensor.copy_(total)
            return [tensor]

        return self._gather([own.indices().t().contiguous(), own.values()], build, elements=0)


_sums: dict[torch.dtype, Reduction] = {}
"""The reduction that nearly all calls want, by element type."""


def _reduction(op: Any, tensors: Tensors) -> Reduction:
    dtype = tensors[0].dtype if tensors else torch.float32
    if op != dist.ReduceOp.SUM:
        return Reduction(op, dtype)
    if dtype not in _sums:
        _sums[dtype] = Reduction(op, dtype)
    return _sums[dtype]


def _require_known(tensors: Tensors) -> None:
    for tensor in tensors:
        _memory.check(tensor, moves=False)


def _all_reduce(engine: Any, name: Any, reduction: Reduction, described: list) -> Any:
    return engine.all_reduce(name, described, reduction.word, reduction.before)


def _reduce_scatter(engine: Any, name: Any, reduction: Reduction, described: list) -> Any:
    return engine.reduce_scatter(name, described, reduction.word, reduction.before)
