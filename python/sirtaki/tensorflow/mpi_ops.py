"""What scripts import from ``horovod.tensorflow.mpi_ops``: collectives, and a few names beside."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki import tensorflow as _package
from sirtaki._core.operations import operation
from sirtaki.tensorflow.collectives import _allreduce

__all__ = ["_allreduce", "check_num_rank_power_of_2", "handle_average_backwards_compatibility"]


def __getattr__(name: str) -> Any:
    return getattr(_package, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_package.__all__})


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """The reduction, from the current argument and the deprecated one."""
    return operation(op, average)


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Whether Adasum works with this number of ranks.

    >>> [n for n in range(9) if check_num_rank_power_of_2(n)]
    [1, 2, 4, 8]
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Whether TensorFlow finds a GPU."""
    return bool(tf.config.list_physical_devices("GPU"))
