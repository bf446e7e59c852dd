"""A process's place in its job, as ops: their values are found when a graph runs."""

from __future__ import annotations

import tensorflow as tf

from sirtaki.tensorflow import _ops
from sirtaki.tensorflow._ops import unconverted


@unconverted
def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """How many ranks a process set has.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> int(hvd.size_op()) == hvd.size()
    True
    """
    return _ops.place("size", process_set_id, name)


@unconverted
def rank_op(name: str | None = None) -> tf.Tensor:
    """Which rank this process is."""
    return _ops.place("rank", 0, name)


@unconverted
def local_size_op(name: str | None = None) -> tf.Tensor:
    """How many ranks this host has."""
    return _ops.place("local_size", 0, name)


@unconverted
def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Which rank of its host this process is."""
    return _ops.place("local_rank", 0, name)


@unconverted
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 if this process is in a process set, otherwise 0."""
    return _ops.place("included", process_set_id, name)
