"""Arrays that are sent as a smaller type: the engine itself converts single precision."""

from __future__ import annotations

from typing import Any


class Compression:
    """What arrays of single precision are sent as; all other types are sent as they are.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.allreduce(numpy.ones(2, "float32"), compression=hvd.Compression.fp16)
    array([1., 1.], dtype=float32)
    """

    none: str | None = None
    fp16: str | None = "f16"
    bf16: str | None = "bf16"


def wire(compression: str | None, arrays: list[Any]) -> str | None:
    """What the engine is to send these arrays as, if all of them can be sent so."""
    return compression if all(one.dtype.name == "float32" for one in arrays) else None
