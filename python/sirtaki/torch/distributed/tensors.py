"""Preparing tensors for collectives that do not look at shapes, and filling them afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki.torch import _memory

Tensors = Sequence[torch.Tensor]


def require(condition: bool, problem: str) -> None:
    """Fails with a problem unless the condition holds."""
    if not condition:
        raise ValueError(problem)


def require_movable(tensors: Tensors) -> None:
    """Fails if a tensor cannot be sent."""
    for tensor in tensors:
        _memory.check(tensor, moves=True)


def require_one_per_rank(tensors: Tensors, size: int) -> None:
    """Fails unless a list has as many tensors as there are ranks."""
    require(
        len(tensors) == size,
        f"a list of {len(tensors)} tensors was given where each of {size} ranks needs one",
    )


def require_shares(share: torch.Tensor, whole: torch.Tensor, size: int) -> None:
    """Fails unless ``whole`` consists of ``size`` tensors like ``share``."""
    require(
        share.dtype == whole.dtype,
        f"tensors of {share.dtype} and {whole.dtype} cannot be parts of each other",
    )
    require(
        share.numel() * size == whole.numel(),
        f"{size} times {share.numel()} elements, one share per rank, are not {whole.numel()}",
    )


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A view of complex numbers as pairs of real ones, which add up part by part."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in one dimension; the same memory if it is contiguous."""
    return tensor.detach().reshape(-1)


def joined(tensors: Tensors) -> torch.Tensor:
    """All elements of all tensors in one dimension."""
    return torch.cat([flat(tensor) for tensor in tensors])


def deal_out(elements: torch.Tensor, outputs: Tensors) -> list[torch.Tensor]:
    """Fills tensors one after another."""
    counts = [output.numel() for output in outputs]
    require(
        sum(counts) == elements.numel(),
        f"{elements.numel()} elements came from the other ranks, but there is room for "
        f"{sum(counts)}",
    )
    for output, part in zip(outputs, elements.split(counts)):
        output.detach().copy_(part.view(output.shape))
    return list(outputs)


def elements_per_rank(tensor: torch.Tensor, rows: Sequence[int], size: int) -> list[int]:
    """Elements of each rank, from its number of rows; an empty list means equal shares."""
    total = tensor.shape[0] if tensor.dim() else 1
    rows = list(rows)
    if not rows:
        require(total % size == 0, f"{total} rows cannot be divided equally among {size} ranks")
        rows = [total // size] * size
    require(
        len(rows) == size and sum(rows) == total,
        f"{total} rows do not split into {rows} for {size} ranks",
    )
    row = tensor[0].numel() if total and tensor.dim() else 1
    return [count * row for count in rows]
