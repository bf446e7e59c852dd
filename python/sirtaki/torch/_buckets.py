"""Gradients of GPUs, handed in together.

A gradient that comes alone costs the host more than a GPU needs to reduce a small one, and NCCL is
slow with small tensors. So gradients of GPUs are collected until they are worth a call, and then
handed in by one call, each under its own name: ranks need not agree on what a bucket contains.
The first bucket is small, so that the network begins early. On the host, where reducing costs more
than handing in, gradients go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

from sirtaki._core.handle import Handle
from sirtaki._core.job import world
from sirtaki._core.names import name_for
from sirtaki._core.operations import OPERATIONS
from sirtaki._core.process_sets import ProcessSet
from sirtaki.torch import _memory
from sirtaki.torch._submit import WIRE, rounded
from sirtaki.torch.compression import travels_as

FIRST, LATER = 1 << 20, 25 << 20
"""Bytes that make a bucket complete: the first of a step, and the others."""

Stream = Any
"""The number of a GPU and the driver's handle of one of its streams, or ``None`` on the host."""


def is_collected(gradient: torch.Tensor) -> bool:
    """Whether a gradient is handed in with others."""
    return gradient.is_cuda and gradient.layout == torch.strided


class Bucket:
    """Parameters whose gradients are complete and have not been handed in."""

    def __init__(self) -> None:
        self.parameters: list[torch.Tensor] = []
        self.streams: list[Stream] = []
        """The stream on which each gradient was computed."""
        self._bytes, self._limit = 0, FIRST

    def __bool__(self) -> bool:
        return bool(self.parameters)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return any(parameter is one for one in self.parameters)

    def add(self, parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
        """Adds a gradient; says whether the bucket is complete."""
        self.parameters.append(parameter)
        self.streams.append(_memory.current_stream(gradient))
        self._bytes += gradient.numel() * gradient.element_size()
        return self._bytes >= self._limit

    def take(self) -> tuple[list[torch.Tensor], list[Stream]]:
        """The parameters and streams; the bucket is empty afterwards."""
        taken = self.parameters, self.streams
        self.parameters, self.streams, self._bytes, self._limit = [], [], 0, LATER
        return taken

    def begin_step(self) -> None:
        """The next bucket is the first of a step."""
        self._limit = FIRST


def reduce_each(
    gradients: Sequence[torch.Tensor],
    names: Sequence[str],
    streams: Sequence[Stream],
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
    compression: Any,
) -> Callable[[], Sequence[torch.Tensor]]:
    """All-reduces gradients of GPUs in place, each under its own name.

    Returns a function that waits for all of them and returns them.
    """
    sent = [_compressed(compression, gradient) for gradient in gradients]
    parts: dict[tuple[float, float], list[int]] = {}
    for index, (small, _) in enumerate(sent):
        _memory.check(small, moves=False)
        parts.setdefault(rounded(scale, [small]), []).append(index)
    handles = []
    for factors, part in parts.items():
        fulls = [name_for("allreduce", names[i], process_set.process_set_id) for i in part]
        staged = _memory.Staged([sent[i][0] for i in part], [streams[i] for i in part])
        ticket = process_set.engine().all_reduce_each(
            fulls, staged.describe(), OPERATIONS[op], *factors
        )
        for full in fulls:
            world.in_flight.add((full, process_set.process_set_id), ticket)
        handles.append(Handle(ticket, staged.finish, staged.streams))

    def wait() -> Sequence[torch.Tensor]:
        for handle in handles:
            handle.wait()
        for gradient, (small, undo) in zip(gradients, sent):
            if small is not gradient:
                result = undo(small)
                if result.data_ptr() != gradient.data_ptr():
                    gradient.detach().copy_(result)
        return gradients

    return wait


def _compressed(
    compression: Any, gradient: torch.Tensor
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """What is sent for a gradient, and how to get from the result to the gradient."""
    wire = travels_as(compression, gradient)
    if wire is not None:
        # Copying back converts.
        return gradient.detach().to(WIRE[wire]), lambda small: small
    small, ctx = compression.compress(gradient)
    return small, lambda small: compression.decompress(small, ctx)
