"""Joining a job, and what TensorFlow can do."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki._core import job, process_sets


def cuda_built() -> bool:
    """Whether this TensorFlow can use CUDA devices."""
    return tf.test.is_built_with_cuda()


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job that this process was started for, with all other ranks.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.is_initialized()
    True
    """
    _init(comm, process_sets)
    _pin()


_init = process_sets.init


def _pin() -> None:
    """Leaves this process one GPU, that of its local rank, unless the program has chosen."""
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1 and tf.config.get_visible_devices("GPU") == gpus:
        try:
            tf.config.set_visible_devices(gpus[job.local_rank() % len(gpus)], "GPU")
        except RuntimeError:
            # TensorFlow uses them already; the program decides.
            return
