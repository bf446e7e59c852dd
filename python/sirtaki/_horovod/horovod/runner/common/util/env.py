"""A process's place in a job, from the variables of the launcher that started it."""

from __future__ import annotations

import os

__all__ = ["get_env_rank_and_size"]

_VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and number of ranks; a process that no launcher started is the only one."""
    for rank, size in _VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
