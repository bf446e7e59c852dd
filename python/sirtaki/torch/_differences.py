"""The mean over ranks of what each of them changed, in full or in fewer bytes.

What rounding takes away is kept and added to the next difference (error feedback), so that nothing
is lost for good. All ranks end with the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch

from sirtaki._core import job
from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet
from sirtaki.torch._submit import reduce_in_place
from sirtaki.torch.synchronous import allgather, alltoall

BLOCK = 256
"""Numbers that are rounded together."""

Tensors = list[torch.Tensor]


class Whole:
    """Differences as they are."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set

    def mean(self, tensors: Tensors, name: str) -> Tensors:
        """The mean of all ranks' tensors, in place."""
        return reduce_in_place(tensors, name, Average, (1.0, 1.0), self._process_set).wait()

    def state(self) -> Any:
        """What has to be saved to continue exactly: nothing here."""
        return None

    def restore(self, state: Any) -> None:
        """The opposite."""


class _Rounded(Whole):
    """Differences in fewer bytes.

    Every rank adds up one part for all and sends the mean to all, rounded again, so that a rank
    sends the same number of bytes however many ranks there are.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        super().__init__(process_set)
        self._rests: list[torch.Tensor | None] = [None, None]
        """What rounding has taken away so far: from this rank's numbers, and from its means."""
        self._round_number = 0

    @staticmethod
    @abstractmethod
    def pack(blocks: torch.Tensor) -> torch.Tensor:
        """Blocks of numbers as rows of bytes."""

    @staticmethod
    @abstractmethod
    def unpack(packed: torch.Tensor) -> torch.Tensor:
        """The numbers that such rows stand for."""

    def mean(self, tensors: Tensors, name: str) -> Tensors:
        """The mean of all ranks' tensors, rounded twice."""
        if job.is_elastic() and self._round_number != job.round_number():
            # Other ranks have other parts, and state comes from one of them.
            self._rests, self._round_number = [None, None], job.round_number()
        among, ranks = self._process_set, len(self._process_set.ranks)
        flat = torch.cat([tensor.flatten().float().to(tensors[0].device) for tensor in tensors])
        padded = torch.nn.functional.pad(flat, (0, -len(flat) % (ranks * BLOCK)))
        sent = self._round(0, padded.view(-1, BLOCK))
        received = alltoall(sent, name=f"{name}.parts", process_set=among)
        mean = torch.stack([self.unpack(part) for part in received.chunk(ranks)]).mean(0)
        means = allgather(self._round(1, mean), name=f"{name}.means", process_set=among)
        cut = self.unpack(means).view(-1)[: len(flat)].split([t.numel() for t in tensors])
        return [part.view_as(tensor).to(tensor) for part, tensor in zip(cut, tensors)]

    def _round(self, which: int, blocks: torch.Tensor) -> torch.Tensor:
        rest = self._rests[which]
        if rest is not None:
            blocks = blocks + rest
        packed = self.pack(blocks)
        self._rests[which] = blocks - self.unpack(packed)
        return packed

    def state(self) -> Any:
        """What rounding has taken away so far."""
        return self._rests

    def restore(self, state: Any) -> None:
        """The opposite."""
        self._rests = list(state)


class Halves(_Rounded):
    """Differences in bfloat16."""

    @staticmethod
    def pack(blocks: torch.Tensor) -> torch.Tensor:
        """Two bytes for each number."""
        return blocks.bfloat16().view(torch.uint8)

    @staticmethod
    def unpack(packed: torch.Tensor) -> torch.Tensor:
        """The numbers."""
        return packed.contiguous().view(torch.bfloat16).float()


class Bytes(_Rounded):
    """Differences in 8 bits, with a scale for every block."""

    @staticmethod
    def pack(blocks: torch.Tensor) -> torch.Tensor:
        """One byte for each number, then four for the scale."""
        scales = blocks.abs().amax(1, keepdim=True) / 127
        divisors = scales.where(scales > 0, torch.ones_like(scales))
        integers = (blocks / divisors).round().to(torch.int8)
        return torch.cat([integers.view(torch.uint8), scales.view(torch.uint8)], 1)

    @staticmethod
    def unpack(packed: torch.Tensor) -> torch.Tensor:
        """The numbers."""
        integers = packed[:, :BLOCK].contiguous().view(torch.int8)
        return integers * packed[:, BLOCK:].contiguous().view(torch.float32)
