"""Collectives, inside and outside of ``jit``, with gradients.

Inside, a call becomes part of XLA's program. Outside, it is a small program of its own, compiled
once per shape; where ranks may have different numbers of rows, which no program of XLA's can, the
arrays go through NumPy instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy

import sirtaki.numpy
from sirtaki._core import operations
from sirtaki._core.operations import OPERATIONS, Adasum, Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.jax import _calls, _handler, _rounds
from sirtaki.jax._calls import How
from sirtaki.jax._names import name_for, program

_SINGLE = ("float16", "bfloat16", "float32")
_REDUCIBLE = (*_SINGLE, "float64", "int8", "uint8", "int32", "int64", "bool")


def _how(kind: str, name: str | None, process_set: ProcessSet, **details: Any) -> How:
    engine = _handler.announce(process_set)
    rank, size = process_set.engine().rank, process_set.engine().size
    return How(name_for(kind, name), engine, rank, size, **details)


def _perform(function: Any, how: How, arrays: Sequence[Any]) -> Any:
    """Runs a collective as a part of the current program, or as one of its own."""
    if program() is not None:
        _require_one_device()
        if function is not _calls.reduce:
            _rounds.relies_on_ranks()
        return function(how, *arrays)
    places = [None if _on_host(array) else array.sharding for array in arrays]
    if not any(places):
        return _calls.compiled[function](how, *arrays)
    # Arrays of a GPU are copied to the host and back; JAX orders the copies.
    host = jax.devices("cpu")[0]
    results = _calls.compiled[function](how, *jax.device_put(list(arrays), host))
    if isinstance(results, list):
        return [jax.device_put(*pair) if pair[1] else pair[0] for pair in zip(results, places)]
    return jax.device_put(results, places[0])


def _require_one_device() -> None:
    """Fails inside ``shard_map`` over several devices, each of which would call for itself."""
    mesh: Any = getattr(jax.sharding, "get_abstract_mesh", lambda: None)()
    shards = math.prod(mesh.shape[axis] for axis in getattr(mesh, "manual_axes", ()))
    if shards > 1:
        raise ValueError(
            f"a collective inside shard_map would be called by each of {shards} devices\n"
            "hint: reduce over them with jax.lax.psum, and call the collective outside"
        )


def _on_host(array: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in array.devices())


def check_reducible(array: jax.Array) -> None:
    """Raises an error for elements that cannot be reduced, before other ranks are involved."""
    if array.dtype.name not in _REDUCIBLE:
        raise ValueError(
            f"arrays of {array.dtype.name} cannot be reduced\n"
            f"hint: convert them with astype() to one of {', '.join(_REDUCIBLE)}"
        )


def reduced(
    kind: str,
    arrays: Sequence[jax.Array],
    op: int,
    name: str | None,
    scale: tuple[float, float],
    process_set: ProcessSet,
) -> list[jax.Array]:
    """Reductions of arrays, done together."""
    if op not in OPERATIONS:
        raise ValueError(f"there is no reduction {op!r}; use Average, Sum, Min, Max, ...")
    for array in arrays:
        check_reducible(array)
    if op == Adasum:
        operations.check_adasum(process_set)
    if all(array.dtype.name in _SINGLE for array in arrays):
        scale = operations.single(scale)
    return _perform(_calls.reduce, _how(kind, name, process_set, op=op, scale=scale), arrays)


def all_reduce(
    array: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """The reduction of an array over all ranks; the default is the average.

    >>> import jax, jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> hvd.all_reduce(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    >>> jax.jit(hvd.all_reduce)(jnp.array([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    scale = (prescale_factor, postscale_factor)
    return reduced("allreduce", [jnp.asarray(array)], op, name, scale, process_set)[0]


def all_gather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """The rows of all ranks, one after another; a number is a row.

    Outside of ``jit`` and ``grad``, ranks may have different numbers of rows.

    >>> import jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> hvd.all_gather(jnp.ones((1, 3))).shape == (hvd.size(), 3)
    True
    """
    array = jnp.atleast_1d(array)
    if program() is None:
        gathered = sirtaki.numpy.allgather(_bytes(array), name, process_set)
        return _adopt(gathered, array)
    return _perform(_calls.gather, _how("allgather", name, process_set), [array])


def _bytes(array: jax.Array) -> Any:
    """The same rows in NumPy's memory, as bytes, which suit all element types."""
    values = numpy.ascontiguousarray(jax.device_get(array))
    return values.reshape(len(values), math.prod(values.shape[1:])).view("uint8")


def _adopt(rows: Any, like: jax.Array) -> jax.Array:
    """Rows of bytes as an array like another one, in its place."""
    values = rows.view(like.dtype).reshape(len(rows), *like.shape[1:])
    return jnp.asarray(values) if _on_host(like) else jax.device_put(values, like.sharding)


def broadcast(
    array: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """The array of ``root_rank``.

    >>> import jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> hvd.broadcast(jnp.array([3, 4]), root_rank=0).tolist()
    [3, 4]
    """
    return spread("broadcast", [jnp.asarray(array)], root_rank, name, process_set)[0]


def spread(
    kind: str,
    arrays: Sequence[jax.Array],
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
) -> list[jax.Array]:
    """The arrays of ``root_rank``, done together."""
    root = process_set.root(root_rank)
    return _perform(_calls.spread, _how(kind, name, process_set, root=root), arrays)


def reduce_scatter(
    array: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Reduces an array over all ranks and returns this rank's share of the rows.

    If the rows cannot be divided equally, the first ranks get one more each.

    >>> import jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> hvd.reduce_scatter(jnp.ones((hvd.size(), 2)), op=hvd.Average).tolist()
    [[1.0, 1.0]]
    """
    array = jnp.asarray(array)
    check_reducible(array)
    operations.check_scatter("reduce_scatter", op)
    if array.ndim == 0:
        raise ValueError("a number has no rows to scatter\nhint: use all_reduce")
    scale = (prescale_factor, postscale_factor)
    if array.dtype.name in _SINGLE:
        scale = operations.single(scale)
    details = {"op": op, "scale": scale, "rows": array.shape[0]}
    return _perform(_calls.scatter, _how("reducescatter", name, process_set, **details), [array])


def all_to_all(
    array: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    received: Sequence[int] | None = None,
) -> Any:
    """Sends ``splits[i]`` rows to rank ``i``; without splits, the same number to each rank.

    Returns the rows received. With splits but without ``received`` it also returns how many came
    from each rank, which is only possible outside of ``jit`` and ``grad``: inside, ``received``
    has to say that in advance.

    >>> import jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> rows, counts = hvd.all_to_all(jnp.ones(2 * hvd.size()), [2] * hvd.size())
    >>> counts == [2] * hvd.size()
    True
    """
    array = jnp.atleast_1d(array)
    size = process_set.engine().size
    sent = operations.splits(array.shape[0], None if splits is None else list(splits), size)
    if splits is None:
        received = sent
    array = array[: sum(sent)]
    if received is None:
        if program() is not None:
            raise ValueError(
                "inside jit and grad, the sizes of results have to be known\n"
                "hint: give received, the number of rows that come from each rank"
            )
        rows, counts = sirtaki.numpy.alltoall(_bytes(array), sent, name, process_set)
        return _adopt(rows, array), [int(count) for count in counts]
    details = {"splits": tuple(sent), "received": tuple(int(count) for count in received)}
    if len(details["received"]) != size:
        raise ValueError(f"{size} ranks need {size} numbers in received, not {len(received)}")
    return _perform(_calls.exchange, _how("alltoall", name, process_set, **details), [array])
