"""Small helpers that scripts import from ``horovod.common.util``."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Callable

import sirtaki._core.capabilities as _capabilities
from horovod.common.exceptions import (
    HorovodVersionMismatchError,
    get_version_mismatch_message,
)
from sirtaki._core.capabilities import check_extension

EXTENSIONS = ["tensorflow", "torch", "mxnet"]

__all__ = [
    "EXTENSIONS",
    "HorovodVersionMismatchError",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_version_mismatch_message",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a function only once for the same arguments."""
    return functools.lru_cache(maxsize=None)(f)


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a framework can be used."""
    return ext_base_name in ("tensorflow", "torch")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a framework finds a GPU."""
    return bool(import_module(f"sirtaki.{ext_base_name}.mpi_ops").gpu_available())


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether Adasum works with this number of ranks."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def check_installed_version(name: str, version: str, exception: Any = None) -> None:
    """Does nothing: one wheel serves all versions."""


def mpi_built(verbose: bool = False) -> bool:
    """As ``horovod.torch.mpi_built``."""
    return _capabilities.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """As ``horovod.torch.gloo_built``."""
    return _capabilities.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """As ``horovod.torch.nccl_built``."""
    return _capabilities.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """As ``horovod.torch.ddl_built``."""
    return _capabilities.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """As ``horovod.torch.ccl_built``."""
    return _capabilities.ccl_built()


@contextmanager
def env(**kwargs: str) -> Iterator[None]:
    """Environment variables that are set inside and restored afterwards."""
    before = {name: os.environ.get(name) for name in kwargs}
    os.environ.update(kwargs)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_iterable(x: Any) -> bool:
    """Whether it can be iterated over."""
    return hasattr(x, "__iter__") or hasattr(x, "__getitem__")


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version ``ver`` is ``target`` or newer; both are three numbers separated by dots."""
    versions = [[int(part) for part in text.split("+")[0].split(".")] for text in (ver, target)]
    if any(len(version) != 3 for version in versions):  # noqa: PLR2004
        raise ValueError(f"versions are three numbers with points, unlike {ver!r} or {target!r}")
    return versions[0] >= versions[1]


def split_list(l: list, n: int) -> list[list]:  # noqa: E741
    """Cuts a list into ``n`` parts whose lengths differ by at most one."""
    share, more = divmod(len(l), n)
    bounds = [index * share + min(index, more) for index in range(n + 1)]
    return [l[begin:end] for begin, end in zip(bounds, bounds[1:])]
