"""Models, optimizers and any other objects, made equal on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sirtaki._core import job, objects
from sirtaki._core.objects import broadcast_object
from sirtaki.torch.asynchronous import broadcast_async_

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Replaces parameters by those of ``root_rank``.

    ``params`` is a ``state_dict``, or a list of tensors or of names and tensors.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.broadcast_parameters(torch.nn.Linear(2, 2).state_dict(), root_rank=0)
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, list):
        named = [item if isinstance(item, tuple) else (None, item) for item in params]
    else:
        raise ValueError(f"parameters come in a dict or a list, not in a {type(params).__name__}")
    tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
    handles = [broadcast_async_(value, root_rank, name) for name, value in tensors]
    for handle in handles:
        handle.wait()


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks, in their order.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.allgather_object("mine") == ["mine"] * hvd.size()
    True
    """
    return objects.allgather_object(obj, name)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Replaces an optimizer's state and options by those of ``root_rank``.

    Ranks may start with different states: if only the root has loaded one from a checkpoint, all
    ranks have it afterwards.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> optimizer = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
    >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    state = optimizer.state_dict()
    if not state["state"]:
        # Scripts for Horovod expect gradients after this call, before the first backward pass.
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    tensors: list[torch.Tensor] = []
    mine = _without_tensors(state, tensors)
    skeleton = broadcast_object(mine, root_rank, "optimizer_state")
    if job.rank() != root_rank:
        tensors = []
        state = _with_tensors(skeleton, tensors)
    handles = [
        broadcast_async_(tensor, root_rank, f"optimizer_state.{index}")
        for index, tensor in enumerate(tensors)
    ]
    for handle in handles:
        handle.wait()
    if job.rank() != root_rank:
        optimizer.load_state_dict(state)


class _Place:
    """Where a tensor was, and what it takes to make one like it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device.type


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The same structure with places for tensors, which are listed."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(value)
    if isinstance(value, dict):
        return {key: _without_tensors(inner, tensors) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(inner, tensors) for inner in value)
    return value


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The opposite: new tensors in all places, which are listed."""
    if isinstance(value, _Place):
        tensors.append(torch.empty(value.shape, dtype=value.dtype, device=value.device))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _with_tensors(inner, tensors) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(inner, tensors) for inner in value)
    return value
