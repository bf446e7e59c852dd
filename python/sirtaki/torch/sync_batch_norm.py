"""Batch normalisation over the batches of all ranks, on every device.

Ranks exchange counts, means and variances in the forward pass and two sums in the backward pass.
Counts may differ: every element of the whole batch has the same weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from sirtaki._core import job
from sirtaki._core.operations import Sum
from sirtaki.torch.synchronous import allgather, allreduce


class SyncBatchNorm(_BatchNorm):
    """As ``torch.nn.BatchNorm1d``, ``2d`` and ``3d``, over the batches of all ranks.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> hvd.SyncBatchNorm(3)(torch.randn(4, 3, 8, 8)).shape
    torch.Size([4, 3, 8, 8])
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:  # noqa: PLR2004
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The batch with mean zero and variance one in every channel, then scaled and shifted."""
        if not self.training or job.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        momentum = self.momentum
        if self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        running = (self.running_mean, self.running_var, momentum)
        return _Normalize.apply(input, self.weight, self.bias, self.eps, running)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        running: tuple,
    ) -> torch.Tensor:
        around = [dim for dim in range(input.dim()) if dim != 1]
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        count, mean, variance = _whole(wide, around)
        inverse = torch.rsqrt(variance + eps)
        shape = [1, -1] + [1] * (input.dim() - 2)
        normal = (wide - mean.view(shape)) * inverse.view(shape)
        ctx.save_for_backward(normal, weight, inverse)
        ctx.count, ctx.around, ctx.shape, ctx.dtype = count, around, shape, input.dtype
        _track(running, count, mean, variance)
        if weight is not None and bias is not None:
            normal = normal * weight.view(shape) + bias.view(shape)
        return normal.to(input.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        normal, weight, inverse = ctx.saved_tensors
        shape = ctx.shape
        gradient = gradient.to(normal.dtype)
        total = gradient.sum(ctx.around)
        along = (gradient * normal).sum(ctx.around)
        sums = allreduce(torch.stack([total, along]), op=Sum) / ctx.count
        inward = gradient - sums[0].view(shape) - normal * sums[1].view(shape)
        factor = inverse if weight is None else inverse * weight
        inward = (inward * factor.view(shape)).to(ctx.dtype)
        if weight is None:
            return inward, None, None, None, None
        return inward, along.to(weight.dtype), total.to(weight.dtype), None, None


def _whole(wide: torch.Tensor, around: list[int]) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Count, mean and variance of every channel over all ranks, from those of each."""
    count = wide.numel() // max(wide.shape[1], 1)
    if count:
        variance, mean = torch.var_mean(wide, around, unbiased=False)
    else:
        mean = variance = wide.new_zeros(wide.shape[1])
    mine = torch.cat([mean, variance, mean.new_tensor([count])])
    every = allgather(mine.unsqueeze(0))
    means, variances = every[:, : mean.numel()], every[:, mean.numel() : -1]
    counts = every[:, -1:]
    total = counts.sum().clamp(min=1)
    whole = (means * counts).sum(0) / total
    spread = ((variances + (means - whole) ** 2) * counts).sum(0) / total
    return float(total), whole, spread


def _track(running: tuple, count: float, mean: torch.Tensor, variance: torch.Tensor) -> None:
    running_mean, running_var, momentum = running
    if running_mean is None:
        return
    unbiased = variance * (count / max(count - 1, 1))
    running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    running_var.lerp_(unbiased.to(running_var.dtype), momentum)
