"""The collectives for PyTorch's tensors, as handles."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sirtaki._core.adapter import Start, hand_in
from sirtaki._core.collectives import Collectives
from sirtaki._core.handle import Handle
from sirtaki._core.operations import Adasum
from sirtaki.torch import _memory

Tensors = Sequence[torch.Tensor]

WIRE = {"f16": torch.float16, "bf16": torch.bfloat16}
"""Types that the engine converts to, and what is sent instead for tensors on a GPU."""


class _Collectives(Collectives):
    """Makes tensors on a GPU smaller there, because the engine cannot do it."""

    def _reduce(self, wire: str | None, op: int, start: Start, tensors: Tensors) -> Handle:
        if wire is None or op == Adasum or not any(tensor.is_cuda for tensor in tensors):
            return hand_in(self.adapter, start, tensors)
        small = [
            tensor.detach().to(WIRE[wire])
            if tensor.is_cuda and tensor.dtype == torch.float32
            else tensor
            for tensor in tensors
        ]

        def back(results: list[torch.Tensor]) -> list[torch.Tensor]:
            for tensor, result in zip(tensors, results):
                if result.dtype != tensor.dtype:
                    tensor.detach().copy_(result)
            return list(tensors)

        return hand_in(self.adapter, start, small).map(back)


_collectives = _Collectives(_memory.TENSORS)

rounded = _collectives.rounded
copied = _memory.TENSORS.copied
reduce_in_place = _collectives.reduce_in_place
gather = _collectives.gather
spread = _collectives.spread
exchange = _collectives.exchange
scatter = _collectives.scatter
