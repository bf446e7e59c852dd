"""Tensors that are sent as a smaller type.

The engine converts single precision by itself, in the same pass that copies it for fusion. All
other types, and the compressors of users, convert before and after.
"""

from __future__ import annotations

from typing import Any

import torch

from sirtaki._core.compression import Compressor, NoneCompressor


class _HalfCompressor(Compressor):
    """Floating-point numbers in a type of half the size."""

    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The numbers in the smaller type."""
        small = tensor.to(cls.dtype) if tensor.dtype.is_floating_point else tensor
        return small, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The numbers in their own type again."""
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class FP16Compressor(_HalfCompressor):
    """Half precision for all floating-point numbers.

    >>> small, before = FP16Compressor.compress(torch.ones(2))
    >>> small.dtype, FP16Compressor.decompress(small, before).dtype
    (torch.float16, torch.float32)
    """

    wire = "f16"
    dtype = torch.float16


class BF16Compressor(_HalfCompressor):
    """The upper half of single precision: the same range, fewer digits."""

    wire = "bf16"
    dtype = torch.bfloat16


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def travels_as(compression: Any, tensor: torch.Tensor) -> str | None:
    """The engine's own compression for this tensor, if it has one."""
    return getattr(compression, "wire", None) if tensor.dtype == torch.float32 else None
