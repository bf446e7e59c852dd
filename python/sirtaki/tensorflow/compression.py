"""Tensors that are sent as a smaller type."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki._core.compression import Compressor, NoneCompressor


class FP16Compressor(Compressor):
    """Sends floating-point numbers with 16 bits."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor in half precision, and the type it had."""
        small = tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor
        return small, tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in the type it had."""
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class Compression:
    """The choices.

    >>> import tensorflow as tf
    >>> small, dtype = Compression.fp16.compress(tf.constant([1.0, 2.0]))
    >>> small.dtype.name, Compression.fp16.decompress(small, dtype).dtype.name
    ('float16', 'float32')
    """

    none = NoneCompressor
    fp16 = FP16Compressor
