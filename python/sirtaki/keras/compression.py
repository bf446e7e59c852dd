"""Gradients that are sent as a smaller type."""

from __future__ import annotations

from typing import Any

from sirtaki._core.compression import Compressor, NoneCompressor
from sirtaki.keras._library import IS_3, keras


def _cast(tensor: Any, dtype: Any) -> Any:
    if IS_3:
        return keras.ops.cast(tensor, dtype)
    import tensorflow as tf

    return tf.cast(tensor, dtype)


class FP16Compressor(Compressor):
    """Numbers are sent with half precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What is sent, and what is needed to make the tensor from it again."""
        is_float = "float" in str(tensor.dtype)
        return (_cast(tensor, "float16"), tensor.dtype) if is_float else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor made from what was sent."""
        return tensor if ctx is None else _cast(tensor, ctx)


class Compression:
    """How gradients are made smaller before they are sent.

    >>> import keras, sirtaki.keras as hvd
    >>> small, kind = hvd.Compression.fp16.compress(keras.ops.ones(2, "float32"))
    >>> keras.backend.standardize_dtype(small.dtype)
    'float16'
    """

    none = NoneCompressor
    fp16 = FP16Compressor
