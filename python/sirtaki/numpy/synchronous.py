"""Collectives that wait for their result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sirtaki._core.operations import Average, operation
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.numpy import _memory
from sirtaki.numpy._memory import collectives
from sirtaki.numpy.asynchronous import broadcast_async_
from sirtaki.numpy.compression import Compression, wire

Arrays = Sequence[Any]


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The reduction of an array over all ranks; the default is the average.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.allreduce(numpy.array([1.0, 2.0]))
    array([1., 2.])
    """
    scale = (prescale_factor, postscale_factor)
    return _reduced([tensor], name, compression, operation(op, average), scale, process_set)[0]


def grouped_allreduce(
    tensors: Arrays,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The reductions of several arrays, done together.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.grouped_allreduce([numpy.ones(1), numpy.zeros(2)])
    [array([1.]), array([0., 0.])]
    """
    scale = (prescale_factor, postscale_factor)
    return _reduced(tensors, name, compression, operation(op, average), scale, process_set)


def _reduced(
    tensors: Arrays,
    name: str | None,
    compression: Any,
    op: int,
    scale: tuple[float, float],
    process_set: ProcessSet,
) -> list[Any]:
    copies = [_memory.copied(one) for one in _memory.arrays(tensors)]
    small = wire(compression, copies)
    return collectives.reduce_in_place(
        copies, name, op, scale, process_set, small, waits=True
    ).wait()


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces an array over all ranks in place.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> gradient = numpy.ones(2)
    >>> hvd.allreduce_(gradient) is gradient
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    collectives.reduce_in_place(
        _memory.writable([tensor]), name, op, scale, process_set, waits=True
    ).wait()
    return tensor


def grouped_allreduce_(
    tensors: Arrays,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduces several arrays together, in place.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> arrays = [numpy.ones(1), numpy.zeros(2)]
    >>> hvd.grouped_allreduce_(arrays)[1] is arrays[1]
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    collectives.reduce_in_place(
        _memory.writable(tensors), name, op, scale, process_set, waits=True
    ).wait()
    return list(tensors)


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The rows of all ranks, one after another; ranks may have different numbers of them.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.allgather(numpy.array([[hvd.rank()]])).shape == (hvd.size(), 1)
    True
    """
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(
    tensors: Arrays, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gathers several arrays together.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> all_rows = hvd.grouped_allgather([numpy.ones(1), numpy.ones(2)])
    >>> [len(rows) // hvd.size() for rows in all_rows]
    [1, 2]
    """
    return collectives.gather(_memory.arrays(tensors), name, process_set, waits=True).wait()


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The array of ``root_rank``.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.broadcast(numpy.array([3.0]), root_rank=0)
    array([3.])
    """
    copy = _memory.copied(_memory.array(tensor))
    return collectives.spread(copy, root_rank, name, process_set, waits=True).wait()


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Replaces an array by that of ``root_rank``, in place.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> weight = numpy.ones(2)
    >>> hvd.broadcast_(weight, root_rank=0) is weight
    True
    """
    [here] = _memory.writable([tensor])
    collectives.spread(here, root_rank, name, process_set, waits=True).wait()
    return tensor


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Replaces arrays by those of ``root_rank``, in place.

    ``params`` is a dict of names and arrays, or a list of arrays.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.broadcast_parameters({"weight": numpy.ones(2), "bias": numpy.zeros(1)}, root_rank=0)
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, (list, tuple)):
        named = [(None, one) for one in params]
    else:
        raise ValueError(f"parameters come in a dict or a list, not in a {type(params).__name__}")
    handles = [broadcast_async_(one, root_rank, name) for name, one in named]
    for handle in handles:
        handle.wait()


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends ``splits[i]`` rows to rank ``i``; without splits, the same number to each rank.

    Returns the rows received; with splits, also how many came from each rank.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> rows, counts = hvd.alltoall(numpy.ones(2 * hvd.size()), [2] * hvd.size())
    >>> counts.tolist() == [2] * hvd.size()
    True
    """
    here = _memory.array(tensor)
    received, counts = collectives.exchange(here, splits, name, process_set, waits=True).wait()
    return received if splits is None else (received, counts)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces an array over all ranks and returns this rank's share of the rows.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(numpy.ones((hvd.size(), 2)), op=hvd.Average)
    array([[1., 1.]])
    """
    return grouped_reducescatter(
        [tensor], name, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Arrays,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduces several arrays together and returns this rank's share of the rows of each.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.grouped_reducescatter([numpy.ones(hvd.size()), numpy.zeros(hvd.size())])
    [array([1.]), array([0.])]
    """
    scale = (prescale_factor, postscale_factor)
    here = _memory.arrays(tensors)
    return collectives.scatter(here, name, op, scale, process_set, waits=True).wait()
