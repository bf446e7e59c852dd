"""``tf.data`` by rank."""

from __future__ import annotations

from typing import Any

from sirtaki.data import arrays as _arrays
from sirtaki.data.plans import Plan, place


def shard(
    dataset: Any,
    batch_size: int,
    drop_remainder: bool = True,
    *,
    rank: int | None = None,
    size: int | None = None,
) -> Any:
    """This rank's batches of a ``tf.data.Dataset``, in the data set's own order.

    They are those of ``Partition`` without shuffling: every step takes the next ``size *
    batch_size`` elements, which all ranks deal out like cards. With ``drop_remainder``, a last
    step that is too short is left out, so that all ranks have the same number of steps, whether or
    not the data set knows its length. Without it, ranks may differ by a batch: then call
    ``join()`` at the end.

    >>> import tensorflow as tf
    >>> from sirtaki.data.tensorflow import shard
    >>> [batch.numpy().tolist() for batch in shard(tf.data.Dataset.range(9), 2, rank=1, size=2)]
    [[1, 3], [5, 7]]
    """
    rank, size = place(rank, size)
    if not drop_remainder:
        return dataset.shard(size, rank).batch(batch_size)
    import tensorflow as tf

    def mine(*element: Any) -> Any:
        whole = element[0] if len(element) == 1 else element
        return tf.nest.map_structure(lambda part: part[rank::size], whole)

    return dataset.batch(size * batch_size, drop_remainder=True).map(mine)


def from_arrays(arrays: Any, plan: Plan) -> Any:
    """A ``tf.data.Dataset`` of the batches of a plan, from arrays.

    ``arrays`` is an array, or a tuple or dict of them. Call the plan's ``set_epoch`` before each
    epoch, or give ``fit`` the callback ``sirtaki.data.keras.epochs(plan)``, so that every epoch
    has an order of its own.

    >>> import numpy
    >>> from sirtaki.data import Partition
    >>> from sirtaki.data.tensorflow import from_arrays
    >>> arrays = (numpy.ones((8, 2), "float32"), numpy.arange(8))
    >>> dataset = from_arrays(arrays, Partition(8, batch_size=2, rank=0, size=2))
    >>> [labels.shape[0] for _, labels in dataset]
    [2, 2]
    """
    import tensorflow as tf

    _arrays.check(arrays, plan)
    tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    indices = tf.data.Dataset.from_generator(
        lambda: iter(plan), output_signature=tf.TensorSpec([None], tf.int64)
    )

    def chosen(rows: Any) -> Any:
        return tf.nest.map_structure(lambda part: tf.gather(part, rows), tensors)

    return indices.map(chosen)
