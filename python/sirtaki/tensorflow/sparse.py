"""``tf.IndexedSlices``: some rows of a large tensor, such as gradients of embeddings.

They are gathered instead of reduced: slices with the same index are added by whoever uses them.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from sirtaki._core.operations import Adasum, Average, Sum
from sirtaki._core.process_sets import ProcessSet
from sirtaki.tensorflow import _ops


def check(op: int, before: float, after: float) -> None:
    """Fails if slices cannot be reduced in this way."""
    if op == Adasum:
        raise NotImplementedError(
            "Adasum does not support sparse tensors\nhint: pass sparse_as_dense=True"
        )
    if op not in (Average, Sum):
        raise NotImplementedError("tf.IndexedSlices support only the reductions Average and Sum")
    if (before, after) != (1.0, 1.0):
        raise NotImplementedError(
            "tf.IndexedSlices support neither prescale nor postscale factors"
        )


def reduce_each(
    slices: Sequence[tf.IndexedSlices],
    names: Sequence[str | None],
    op: int,
    members: ProcessSet,
    alone: bool,
) -> list[tf.IndexedSlices]:
    """The slices of all ranks, which stand for the sum or the average of the large tensors."""
    return [
        reduce_together([one], name, op, members, alone)[0] for one, name in zip(slices, names)
    ]


def reduce_together(
    slices: Sequence[tf.IndexedSlices],
    name: str | None,
    op: int,
    members: ProcessSet,
    alone: bool,
) -> list[tf.IndexedSlices]:
    """As ``reduce_each``; they are done together or not at all."""
    full = _ops.label("sparse_allreduce", name, slices[0].values, members, alone)
    parts = [*(one.values for one in slices), *(one.indices for one in slices)]
    gathered = _ops.gather(parts, full, members)
    count = len(slices)
    values, indices = gathered[:count], gathered[count:]
    if op == Average:
        size = _ops.place("size", members.process_set_id or 0, None)
        values = [value / tf.cast(size, value.dtype) for value in values]
    return [
        tf.IndexedSlices(value, index, dense_shape=one.dense_shape)
        for value, index, one in zip(values, indices, slices)
    ]
