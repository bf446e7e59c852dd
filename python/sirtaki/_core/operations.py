"""The reductions: their numbers, their names, and when they are possible."""

from __future__ import annotations

import ctypes
import warnings

from sirtaki._core import job
from sirtaki._core.process_sets import ProcessSet, global_process_set

Average, Sum, Adasum, Min, Max, Product = range(6)

OPERATIONS = {
    Average: "average",
    Sum: "sum",
    Adasum: "adasum",
    Min: "min",
    Max: "max",
    Product: "product",
}
"""The engine's names for the reductions."""

Scale = tuple[float, float]
"""Factors before and after a reduction."""


def operation(op: int | None, average: bool | None) -> int:
    """The reduction, from the current argument and the deprecated one."""
    if op is not None:
        if average is not None:
            raise ValueError("op replaces average; please give only one of them")
        if op not in OPERATIONS:
            raise ValueError(f"there is no reduction {op!r}; use Average, Sum, Min, Max, ...")
        return op
    if average is None:
        return Average
    warnings.warn("average has been replaced by op", DeprecationWarning, stacklevel=4)
    return Average if average else Sum


def check_adasum(process_set: ProcessSet) -> None:
    """Fails if Adasum is not possible."""
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum needs all ranks; process sets are not supported")
    size = job.size()
    if size & (size - 1):
        raise NotImplementedError(f"Adasum needs a power of two of ranks, not {size}")


def check_scatter(kind: str, op: int) -> None:
    """Fails if a reduction's shares cannot be scattered; ``kind`` is what users call that."""
    if op not in (Average, Sum):
        raise NotImplementedError(f"{kind} supports only the reductions Average and Sum")


def single(scale: Scale) -> Scale:
    """The factors in single precision."""
    return ctypes.c_float(scale[0]).value, ctypes.c_float(scale[1]).value


def splits(rows: int, given: list[int] | None, size: int) -> list[int]:
    """How many of the rows go to each rank, checked: as given, or the same number to each.

    >>> splits(6, None, 3), splits(6, [1, 2, 0], 3)
    ([2, 2, 2], [1, 2, 0])
    """
    if given is None:
        if rows % size:
            raise ValueError(
                f"{rows} rows cannot be divided equally among {size} ranks\nhint: give splits"
            )
        return [rows // size] * size
    counts = [int(count) for count in given]
    if len(counts) != size:
        raise ValueError(f"{size} ranks need {size} splits, not {len(counts)}")
    if any(count < 0 for count in counts):
        raise ValueError(f"splits must not be negative, as in {counts}")
    if sum(counts) > rows:
        raise ValueError(f"the splits {counts} are more than the tensor's {rows} rows")
    return counts
