"""Collectives that return at once: a handle now, the result from ``synchronize``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sirtaki._core.collectives import single
from sirtaki._core.handle import Handle
from sirtaki._core.operations import Average, operation
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.numpy import _memory
from sirtaki.numpy._memory import collectives

Arrays = Sequence[Any]


def _copies(tensors: Arrays) -> list[Any]:
    return [_memory.copied(one) for one in _memory.arrays(tensors)]


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces an array over all ranks into a new one; the default is the average.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.allreduce_async(numpy.array([1.0, 2.0]), op=hvd.Max)
    >>> hvd.synchronize(handle)
    array([1., 2.])
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    copies = _copies([tensor])
    return single(collectives.reduce_in_place(copies, name, op, scale, process_set))


def allreduce_async_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces an array over all ranks in place.

    Do not read, change or resize it before ``synchronize``: other threads use its memory.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> gradient = numpy.ones(2)
    >>> hvd.synchronize(hvd.allreduce_async_(gradient)) is gradient
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    here = _memory.writable([tensor])
    return single(
        collectives.reduce_in_place(here, name, op, scale, process_set, returns=[tensor])
    )


def grouped_allreduce_async(
    tensors: Arrays,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces arrays together into new ones.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.grouped_allreduce_async([numpy.ones(1), numpy.zeros(2)])
    >>> hvd.synchronize(handle)
    [array([1.]), array([0., 0.])]
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    return collectives.reduce_in_place(_copies(tensors), name, op, scale, process_set)


def grouped_allreduce_async_(
    tensors: Arrays,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Reduces arrays together in place.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> arrays = [numpy.ones(1), numpy.zeros(2)]
    >>> done = hvd.synchronize(hvd.grouped_allreduce_async_(arrays))
    >>> done[0] is arrays[0]
    True
    """
    op, scale = operation(op, average), (prescale_factor, postscale_factor)
    here = _memory.writable(tensors)
    return collectives.reduce_in_place(here, name, op, scale, process_set, returns=tensors)


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Puts the rows of all ranks one after another; ranks may have different numbers of them.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> rows = hvd.synchronize(hvd.allgather_async(numpy.ones((2, 3))))
    >>> rows.shape == (2 * hvd.size(), 3)
    True
    """
    return single(collectives.gather(_memory.arrays([tensor]), name, process_set, waits=False))


def grouped_allgather_async(
    tensors: Arrays, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Gathers several arrays together.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.grouped_allgather_async([numpy.ones(1), numpy.ones(2)])
    >>> [len(rows) // hvd.size() for rows in hvd.synchronize(handle)]
    [1, 2]
    """
    return collectives.gather(_memory.arrays(tensors), name, process_set, waits=False)


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """The array of ``root_rank`` in a new one.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.synchronize(hvd.broadcast_async(numpy.ones(2), root_rank=0))
    array([1., 1.])
    """
    [copy] = _copies([tensor])
    return collectives.spread(copy, root_rank, name, process_set, waits=False)


def broadcast_async_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Replaces an array by that of ``root_rank``, in place.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> weight = numpy.ones(2)
    >>> hvd.synchronize(hvd.broadcast_async_(weight, root_rank=0)) is weight
    True
    """
    [here] = _memory.writable([tensor])
    handle = collectives.spread(here, root_rank, name, process_set, waits=False)
    return handle.map(lambda _: tensor)


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Sends ``splits[i]`` rows to rank ``i``; the result is what arrived and how many from each.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.alltoall_async(numpy.ones(hvd.size()), [1] * hvd.size())
    >>> rows, counts = hvd.synchronize(handle)
    >>> len(rows) == hvd.size(), counts.tolist() == [1] * hvd.size()
    (True, True)
    """
    return collectives.exchange(_memory.array(tensor), splits, name, process_set, waits=False)


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces an array and gives every rank its share of the rows, the first ranks one more.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> handle = hvd.reducescatter_async(numpy.ones((hvd.size(), 2)), op=hvd.Average)
    >>> hvd.synchronize(handle)
    array([[1., 1.]])
    """
    return single(
        grouped_reducescatter_async(
            [tensor], name, op, process_set, prescale_factor, postscale_factor
        )
    )


def grouped_reducescatter_async(
    tensors: Arrays,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Reduces several arrays together and gives every rank its share of the rows of each.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> arrays = [numpy.ones(hvd.size()), numpy.zeros(hvd.size())]
    >>> hvd.synchronize(hvd.grouped_reducescatter_async(arrays))
    [array([1.]), array([0.])]
    """
    scale = (prescale_factor, postscale_factor)
    here = _memory.arrays(tensors)
    return collectives.scatter(here, name, op, scale, process_set, waits=False)
