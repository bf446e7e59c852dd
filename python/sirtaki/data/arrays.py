"""Arrays by rank: batches in the order of a plan, or this rank's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sirtaki.data.plans import LASTS, Plan, place


def rows(arrays: Any) -> int:
    """How many rows arrays have: a single one, or a list, tuple or dict of several."""
    if isinstance(arrays, (list, tuple, dict)):
        parts = arrays.values() if isinstance(arrays, dict) else arrays
        counts = sorted({rows(part) for part in parts})
        if len(counts) != 1:
            raise ValueError(f"arrays of {counts} rows do not belong together")
        return counts[0]
    if not getattr(arrays, "shape", None):
        raise ValueError(
            f"samples are the rows of arrays, which a {type(arrays).__name__} does not have\n"
            "hint: make an array with numpy.asarray()"
        )
    return int(arrays.shape[0])


def take(arrays: Any, indices: Any) -> Any:
    """The rows with these numbers, of all arrays.

    >>> import numpy
    >>> from sirtaki.data import take
    >>> take({"x": numpy.arange(5) * 10, "y": numpy.arange(5)}, [3, 1])
    {'x': array([30, 10]), 'y': array([3, 1])}
    """
    if isinstance(arrays, dict):
        return {name: take(part, indices) for name, part in arrays.items()}
    if isinstance(arrays, (list, tuple)):
        return type(arrays)(take(part, indices) for part in arrays)
    return arrays[indices]


def batches(arrays: Any, plan: Plan) -> Iterator[Any]:
    """The batches of a plan, as arrays like those given.

    ``arrays`` is an array, or a list, tuple or dict of them.

    >>> import numpy, sirtaki.data, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> inputs, labels = numpy.ones((8, 2)), numpy.arange(8)
    >>> plan = sirtaki.data.Partition(labels, batch_size=2)
    >>> for epoch in range(3):
    ...     plan.set_epoch(epoch)
    ...     for x, y in sirtaki.data.batches((inputs, labels), plan):
    ...         assert x.shape == (len(y), 2)
    """
    check(arrays, plan)
    return (take(arrays, indices) for indices in plan)


def check(arrays: Any, plan: Plan) -> None:
    """Fails unless a plan is one for these arrays."""
    if rows(arrays) != plan.samples:
        raise ValueError(f"a plan for {plan.samples} samples does not fit {rows(arrays)} rows")


def shard(
    arrays: Any, last: str = "drop", *, rank: int | None = None, size: int | None = None
) -> Any:
    """This rank's rows, every ``size``-th one, for programs that shuffle and batch themselves.

    With ``drop`` and ``pad`` all ranks have the same number of rows, as training needs it; with
    ``keep`` some ranks may have one more.

    >>> import numpy
    >>> from sirtaki.data import shard
    >>> [shard(numpy.arange(5), last, rank=1, size=2).tolist() for last in ("keep", "drop", "pad")]
    [[1, 3], [1, 3], [1, 3, 0]]
    """
    if last not in LASTS:
        raise ValueError(f"last must be one of {', '.join(LASTS)}, not {last!r}")
    (rank, size), count = place(rank, size), rows(arrays)
    whole = count // size * size if last == "drop" else count
    if last == "pad":
        whole = -(-count // size) * size
    return take(arrays, np.arange(rank, whole, size) % max(1, count))
