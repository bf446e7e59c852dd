"""Batch normalization with the statistics of all ranks' batches."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki._core import job
from sirtaki._core.process_sets import global_process_set
from sirtaki.tensorflow import _ops
from sirtaki.tensorflow.collectives import _allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """``tf.keras.layers.BatchNormalization`` over the batches of all ranks.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> layer = hvd.SyncBatchNormalization()
    >>> layer(tf.random.normal([8, 3]), training=True).shape
    TensorShape([8, 3])
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:  # noqa: D107
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True")
        kwargs.setdefault("name", "sync_batch_normalization")
        try:
            super().__init__(**kwargs, fused=False)
        except (TypeError, ValueError):
            # Keras 3 has only one implementation, which is not fused.
            super().__init__(**kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Mean and variance; both versions of Keras ask for them here."""
        moments = super()._moments(inputs, *args, **kwargs)
        if job.size() == 1 and not _ops.outlasts_ranks():
            return moments
        return _over_all_ranks(*moments)


def _over_all_ranks(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance over all ranks, from those of this one; ranks have equal batches."""
    own = tf.stack([mean, variance + tf.square(mean)])
    total = _allreduce(own) / tf.cast(_ops.size_of(global_process_set), own.dtype)
    mean, of_squares = tf.unstack(total)
    return mean, of_squares - tf.square(mean)
