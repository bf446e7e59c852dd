"""Sparse tensors: their parts are gathered, and equal indices add up."""

from __future__ import annotations

from typing import Callable

import torch

from sirtaki._core.handle import Handle
from sirtaki._core.operations import Average, Sum
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki._errors import Error
from sirtaki.torch._submit import gather


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Sums or averages a sparse tensor; returns a function that waits for the result.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "eye", hvd.Average)
    >>> wait().to_dense()
    tensor([[1., 0.],
            [0., 1.]])
    """
    if op not in (Average, Sum):
        raise Error("sparse tensors can be summed and averaged, not reduced in other ways")
    size = process_set.size()
    # Rows are gathered, so every element of the tensor has to be a row.
    positions = tensor._indices().t().contiguous()
    positions = _parts(positions, f"{name}.indices", process_set)
    values = _parts(tensor._values(), f"{name}.values", process_set)
    kind = {"size": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}

    def wait() -> torch.Tensor:
        [all_values], [all_positions] = values.wait(), positions.wait()
        if op == Average:
            all_values = all_values / size
        return torch.sparse_coo_tensor(all_positions.t(), all_values, **kind)

    return wait


def _parts(part: torch.Tensor, name: str, process_set: ProcessSet) -> Handle:
    """Gathers; a rank that has joined contributes nothing, as with any sum."""
    return gather([part], name, process_set, waits=False, of_all=False)
