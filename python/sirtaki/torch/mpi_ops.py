"""What scripts import from ``horovod.torch.mpi_ops``: collectives, and a few names beside them.

The classes with ``apply`` are the differentiable collectives under the names that Horovod gives to
its functions of ``torch.autograd``; the differentiation itself is in ``synchronous``.
"""

from __future__ import annotations

from typing import Any

import torch

from sirtaki import torch as _package
from sirtaki._core.operations import operation


def __getattr__(name: str) -> Any:
    return getattr(_package, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_package.__all__})


class _Function:
    """A collective as an object with ``apply``; the order of arguments is Horovod's."""

    names: tuple[str, ...]
    collective: str
    several = False

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs the collective."""
        count = len(cls.names)
        values = args[:count] if cls.several else args[1 : count + 1]
        given = args[count:] if cls.several else args[0]
        result = getattr(_package, cls.collective)(given, **dict(zip(cls.names, values)))
        return tuple(result) if cls.several else result


_REDUCES = ("average", "name", "op", "prescale_factor", "postscale_factor", "process_set")
_SCATTERS = ("name", "op", "process_set", "prescale_factor", "postscale_factor")


class HorovodAllreduce(_Function):
    """``allreduce``."""

    collective, names = "allreduce", _REDUCES


class HorovodGroupedAllreduce(_Function):
    """``grouped_allreduce``; the tensors come last."""

    collective, names, several = "grouped_allreduce", _REDUCES, True


class HorovodAllgather(_Function):
    """``allgather``."""

    collective, names = "allgather", ("name", "process_set")


class HorovodGroupedAllgather(_Function):
    """``grouped_allgather``; the tensors come last."""

    collective, names, several = "grouped_allgather", ("name", "process_set"), True


class HorovodBroadcast(_Function):
    """``broadcast``."""

    collective, names = "broadcast", ("root_rank", "name", "process_set")


class HorovodAlltoall(_Function):
    """``alltoall``."""

    collective, names = "alltoall", ("splits", "name", "process_set")


class HorovodReducescatter(_Function):
    """``reducescatter``."""

    collective, names = "reducescatter", _SCATTERS


class HorovodGroupedReducescatter(_Function):
    """``grouped_reducescatter``; the tensors come last."""

    collective, names, several = "grouped_reducescatter", _SCATTERS, True


def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
    """The reduction, from the current argument and the deprecated one."""
    return operation(op, average)


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether Adasum works with this number of ranks.

    >>> [n for n in range(9) if num_rank_is_power_2(n)]
    [1, 2, 4, 8]
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Whether PyTorch finds a GPU."""
    return torch.cuda.is_available()
