"""Submitting tensors to the engine: what all forms of the collectives have in common.

Mistakes that one rank can detect by itself are raised here, before other ranks are involved.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from sirtaki import _common
from sirtaki._common import OPERATIONS, Adasum, Average, name_for
from sirtaki._errors import Error
from sirtaki._process_sets import ProcessSet, global_process_set
from sirtaki.torch import _memory
from sirtaki.torch._handle import Handle

Tensors = Sequence[torch.Tensor]

_SINGLE = (torch.float16, torch.bfloat16, torch.float32)


def single(handle: Handle) -> Handle:
    """The handle of a single tensor, whose result is that tensor and not a list."""
    return handle.map(lambda results: results[0])


def _registered(handle: Handle, name: str | None, full: str, process_set: ProcessSet) -> Handle:
    """Remembers a name given by a user, which is in use until the tensor is done."""
    if name is not None:
        _common.world.in_flight.add((full, process_set.process_set_id), handle.ticket)
    return handle


def check_adasum(process_set: ProcessSet) -> None:
    """Fails if Adasum is not possible."""
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
    """All-reduces tensors in place; ``returns`` are the objects to return for them."""
    for tensor in tensors:
        _memory.check(tensor, moves=False)
    if op == Adasum:
        check_adasum(process_set)
    scale = _rounded(scale, tensors)
    full = name_for("allreduce", name, process_set.process_set_id, waits)
    start = partial(_start_reduction, process_set.engine(), full, op, scale, wire)
    handle = _registered(_hand_in_as(wire, op, start, tensors), name, full, process_set)
    if returns is not None:
        return handle.map(lambda _: list(returns))
    return handle


_WIRE = {"f16": torch.float16, "bf16": torch.bfloat16}


def _hand_in_as(wire: str | None, op: int, start: _memory.Start, tensors: Tensors) -> Handle:
    """Submits tensors; those on a GPU are made smaller there, because the engine cannot do it."""
    if wire is None or op == Adasum or not any(tensor.is_cuda for tensor in tensors):
        return _memory.hand_in(start, tensors)
    small = [
        tensor.detach().to(_WIRE[wire])
        if tensor.is_cuda and tensor.dtype == torch.float32
        else tensor
        for tensor in tensors
    ]

    def back(results: list[torch.Tensor]) -> list[torch.Tensor]:
        for tensor, result in zip(tensors, results):
            if result.dtype != tensor.dtype:
                tensor.detach().copy_(result)
        return list(tensors)

    return _memory.hand_in(start, small).map(back)


def _rounded(scale: tuple[float, float], tensors: Tensors) -> tuple[float, float]:
    """Factors in the precision of the product: single, for tensors of at most that."""
    if scale == (1.0, 1.0) or any(tensor.dtype not in _SINGLE for tensor in tensors):
        return scale
    return ctypes.c_float(scale[0]).value, ctypes.c_float(scale[1]).value


def _start_reduction(
    engine: Any, name: str, op: int, scale: tuple[float, float], wire: str | None, described: list
) -> Any:
    return engine.all_reduce(name, described, OPERATIONS[op], scale[0], scale[1], wire)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor with the same numbers, for a result that replaces them."""
    if tensor.layout != torch.strided:
        return tensor
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def gather(
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
        _memory.check(tensor, moves=True)
    # A scalar counts as one row.
    rows = [tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in tensors]
    full = name_for("allgather", name, process_set.process_set_id, waits)
    start = partial(_start_gather, process_set.engine(), full, of_all)
    handle = _memory.hand_in_for_new(start, rows, lambda made: [tensor for tensor, _ in made])
    return _registered(handle, name, full, process_set)


def _start_gather(engine: Any, name: str, of_all: bool, described: list) -> Any:
    return engine.all_gather(name, described, of_all)


def spread(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet, waits: bool
) -> Handle:
    """Replaces a tensor by that of ``root_rank``, in place."""
    _memory.check(tensor, moves=True)
    engine, root = process_set.engine(), process_set.root(root_rank)
    full = name_for("broadcast", name, process_set.process_set_id, waits)
    start = partial(_start_broadcast, engine, full, root)
    handle = _registered(_memory.hand_in(start, [tensor]), name, full, process_set)
    return single(handle)


def _start_broadcast(engine: Any, name: str, root: int, described: list) -> Any:
    return engine.broadcast(name, described, root)


def exchange(
    tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet, waits: bool
) -> Handle:
    """Sends rows to other ranks; the result is the rows received, and how many from each rank."""
    _memory.check(tensor, moves=True)
    engine = process_set.engine()
    rows = _splits(tensor, splits, engine.size)
    if tensor.dim() and sum(rows) < tensor.shape[0]:
        # Rows that go to no rank stay here.
        tensor = tensor[: sum(rows)]
    full = name_for("alltoall", name, process_set.process_set_id, waits)
    start = partial(_start_exchange, engine, full, rows)
    kind = {"dtype": torch.int32}
    if isinstance(splits, torch.Tensor):
        kind = {"dtype": splits.dtype, "device": splits.device}

    def build(made: list) -> tuple[torch.Tensor, torch.Tensor]:
        [(received, counts)] = made
        return received, torch.tensor(counts, **kind)

    return _registered(_memory.hand_in_for_new(start, [tensor], build), name, full, process_set)


def _start_exchange(engine: Any, name: str, splits: list[int], described: list) -> Any:
    return engine.all_to_all(name, described[0], splits)


def _splits(tensor: torch.Tensor, splits: Any, size: int) -> list[int]:
    """How many rows go to each rank, checked."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if splits is None or (isinstance(splits, torch.Tensor) and splits.numel() == 0):
        if rows % size:
            raise ValueError(
                f"{rows} rows cannot be divided equally among {size} ranks\nhint: give splits"
            )
        return [rows // size] * size
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"splits must be integers of 32 or 64 bits, not {splits.dtype}")
        splits = splits.tolist()
    splits = [int(split) for split in splits]
    if len(splits) != size:
        raise ValueError(f"{size} ranks need {size} splits, not {len(splits)}")
    if any(split < 0 for split in splits):
        raise ValueError(f"splits must not be negative, as in {splits}")
    if sum(splits) > rows:
        raise ValueError(f"the splits {splits} are more than the tensor's {rows} rows")
    return splits


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
        raise NotImplementedError("reducescatter supports only the reductions Average and Sum")
    for tensor in tensors:
        _memory.check(tensor, moves=False)
        if tensor.dim() == 0:
            raise Error("a number has no rows to scatter\nhint: use allreduce")
    scale = _rounded(scale, tensors)
    full = name_for("reducescatter", name, process_set.process_set_id, waits)
    start = partial(_start_scatter, process_set.engine(), full, op, scale)
    copies = [copied(tensor) for tensor in tensors]
    handle = _memory.hand_in_for_new(start, copies, lambda made: [tensor for tensor, _ in made])
    return _registered(handle, name, full, process_set)


def _start_scatter(
    engine: Any, name: str, op: int, scale: tuple[float, float], described: list
) -> Any:
    return engine.reduce_scatter(name, described, OPERATIONS[op], scale[0], scale[1])
