"""Collectives that move tensors: broadcast, gathers, scatter and all-to-all.

Everything but a broadcast is sent flat, so that shapes do not matter. Gather and scatter are
all-to-alls in which most ranks send or get nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

import torch

from sirtaki.torch import _memory
from sirtaki.torch.distributed.part import Part
from sirtaki.torch.distributed.tensors import (
    Tensors,
    deal_out,
    elements_per_rank,
    flat,
    joined,
    require_movable,
    require_one_per_rank,
    require_shares,
)
from sirtaki.torch.distributed.work import Work


class Moving(Part):
    """The part of a group that moves tensors."""

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Replaces tensors by those of the root."""
        require_movable(tensors)

        def start(engine: Any, name: Any) -> Any:
            hand_in = partial(_broadcast, engine, name, opts.rootRank)
            return _memory.hand_in(hand_in, tensors).map(lambda _: list(tensors))

        return self._submit("broadcast", tensors, start)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """All ranks get the tensors of all ranks, in a list."""
        for parts in outputs:
            require_one_per_rank(parts, self._size)

        def build(made: list) -> list[torch.Tensor]:
            for parts, (whole, _) in zip(outputs, made):
                deal_out(whole, parts)
            return [part for parts in outputs for part in parts]

        room = [[part.numel() for part in parts] for parts in outputs]
        return self._gather(inputs, build, sum(map(sum, room)), room)

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """All ranks get the tensors of all ranks, in a list for each rank."""
        return self.allgather([list(parts) for parts in zip(*outputs)], inputs, opts)

    def _allgather_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """All ranks get the tensors of all ranks, in one tensor."""
        return self.allgather_into_tensor_coalesced([output], [tensor], opts)

    def allgather_into_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        """All ranks get several tensors of all ranks, each in one tensor."""
        for output, tensor in zip(outputs, inputs):
            require_shares(tensor, output, self._size)

        def build(made: list) -> list[torch.Tensor]:
            for output, (whole, _) in zip(outputs, made):
                deal_out(whole, [output])
            return list(outputs)

        room = [[tensor.numel()] * self._size for tensor in inputs]
        return self._gather(inputs, build, sum(map(sum, room)), room)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """The root gets the tensors of all ranks, in a list."""
        [tensor] = inputs
        parts: Tensors = []
        if self._rank == opts.rootRank:
            [parts] = outputs
            require_one_per_rank(parts, self._size)
        splits = [tensor.numel() * (rank == opts.rootRank) for rank in range(self._size)]
        room = [part.numel() for part in parts] or [0] * self._size
        return self._exchange("gather", flat(tensor), splits, parts, room)

    def gather_single(self, output: torch.Tensor | None, tensor: torch.Tensor, opts: Any) -> Work:
        """The root gets the tensors of all ranks, in one tensor."""
        if self._rank != opts.rootRank:
            return self.gather([], [tensor], opts)
        require_shares(tensor, output, self._size)
        return self.gather([list(flat(output).chunk(self._size))], [tensor], opts)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Every rank gets its tensor from the root's list."""
        [output] = outputs
        room = [output.numel() * (rank == opts.rootRank) for rank in range(self._size)]
        if self._rank != opts.rootRank:
            nothing = output.new_empty(0)
            return self._exchange("scatter", nothing, [0] * self._size, [output], room)
        [parts] = inputs
        require_one_per_rank(parts, self._size)
        splits = [part.numel() for part in parts]
        return self._exchange("scatter", joined(parts), splits, [output], room)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Sends a tensor to each rank and gets one from each."""
        require_one_per_rank(inputs, self._size)
        require_one_per_rank(outputs, self._size)
        splits, room = ([tensor.numel() for tensor in tensors] for tensors in (inputs, outputs))
        return self._exchange("alltoall", joined(inputs), splits, outputs, room)

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_rows: Sequence[int],
        input_rows: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Sends rows to each rank and gets rows from each."""
        room = elements_per_rank(output, output_rows, self._size)
        splits = elements_per_rank(tensor, input_rows, self._size)
        return self._exchange("alltoall", flat(tensor), splits, [output], room)

    # Names from PyTorch 2.14 on.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base

    def _gather(
        self,
        tensors: Tensors,
        build: Callable,
        elements: int | None = None,
        room: Sequence[list[int]] = (),
    ) -> Work:
        """Gathers tensors; ``room`` is the number of elements per rank, where that is fixed."""
        require_movable(tensors)
        rows = [flat(tensor) for tensor in tensors]

        def start(engine: Any, name: Any) -> Any:
            hand_in = partial(_all_gather, engine, name, list(room))
            return _memory.hand_in_for_new(hand_in, rows, build)

        return self._submit("allgather", rows, start, elements)

    def _exchange(
        self,
        kind: str,
        elements: torch.Tensor,
        splits: list[int],
        outputs: Tensors,
        room: list[int],
    ) -> Work:
        require_movable([elements])

        def start(engine: Any, name: Any) -> Any:
            hand_in = partial(_all_to_all, engine, name, (splits, room))
            return _memory.hand_in_for_new(
                hand_in, [elements], lambda made: deal_out(made[0][0], outputs)
            )

        return self._submit(kind, [elements], start, elements=0)


def _broadcast(engine: Any, name: Any, root: int, described: list) -> Any:
    return engine.broadcast(name, described, root)


def _all_gather(engine: Any, name: Any, room: list[list[int]], described: list) -> Any:
    return engine.all_gather(name, described, True, room)


def _all_to_all(engine: Any, name: Any, sizes: tuple, described: list) -> Any:
    return engine.all_to_all(name, described[0], *sizes)
