"""The collectives as JAX sees them: functions of arrays, with gradients, to be traced.

Gradients follow the same rules as in the other front ends. Everything about a call that is not an
array is in one value that can be compared, so that JAX compiles equal calls once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.dtypes import float0

from sirtaki._core.operations import OPERATIONS, Average, Sum
from sirtaki.jax import _handler


@dataclass(frozen=True)
class How:
    """What a call does, and with whom."""

    name: str
    engine: int
    rank: int
    """Which of the ranks of the process set this one is."""
    size: int
    op: int = Average
    scale: tuple[float, float] = (1.0, 1.0)
    root: int = 0
    splits: tuple[int, ...] = ()
    """How many rows go to each rank."""
    received: tuple[int, ...] = ()
    """How many rows come from each rank."""
    rows: int = 0
    """How many rows are scattered."""

    def of_gradient(self, **changes: Any) -> How:
        """The same for the call that computes a gradient."""
        return replace(self, name=f"{self.name}.gradient", **changes)


def _reduction(how: How) -> dict[str, Any]:
    before, after = map(numpy.float64, how.scale)
    return {"op": OPERATIONS[how.op], "before": before, "after": after}


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def reduce(how: How, *arrays: Any) -> list[jax.Array]:
    """Reductions of arrays over all ranks, done together."""
    return _handler.call(
        arrays,
        [(array.shape, array.dtype) for array in arrays],
        {index: index for index in range(len(arrays))},
        "broadcast_all",
        how.engine,
        name=how.name,
        operation="all_reduce",
        **_reduction(how),
    )


def _reduce_backward(how: How, _: None, gradients: list) -> tuple:
    if how.op not in (Average, Sum):
        raise NotImplementedError(
            f"the reduction `{OPERATIONS[how.op]}` has no gradient\n"
            "hint: use Average or Sum, or jax.lax.stop_gradient around its argument"
        )
    return _reduced_gradients(how.of_gradient(), gradients)


def _reduced_gradients(how: How, gradients: list) -> tuple:
    """Gradients, reduced; those of integers stay what they are, which is nothing."""
    numbers = [gradient for gradient in gradients if gradient.dtype != float0]
    reduced = iter(reduce(how, *numbers) if numbers else [])
    return tuple(gradient if gradient.dtype == float0 else next(reduced) for gradient in gradients)


reduce.defvjp(lambda how, *arrays: (reduce(how, *arrays), None), _reduce_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def spread(how: How, *arrays: Any) -> list[jax.Array]:
    """The arrays of the root."""
    return _handler.call(
        arrays,
        [(array.shape, array.dtype) for array in arrays],
        {index: index for index in range(len(arrays))},
        "broadcast_all",
        how.engine,
        name=how.name,
        operation="broadcast",
        root=numpy.int64(how.root),
    )


def _spread_backward(how: How, _: None, gradients: list) -> tuple:
    """All gradients go to the root; the arguments of other ranks have no influence."""
    reduced = _reduced_gradients(how.of_gradient(op=Average), gradients)
    if how.rank == how.root:
        return reduced
    return tuple(
        gradient if gradient.dtype == float0 else jnp.zeros_like(gradient) for gradient in reduced
    )


spread.defvjp(lambda how, *arrays: (spread(how, *arrays), None), _spread_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def gather(how: How, array: Any) -> jax.Array:
    """The rows of all ranks; every rank has as many."""
    rows = array.shape[0]
    [gathered] = _handler.call(
        [array],
        [((rows * how.size, *array.shape[1:]), array.dtype)],
        {},
        "sequential",
        how.engine,
        name=how.name,
        operation="all_gather",
        room=numpy.full(how.size, rows, numpy.int64),
    )
    return gathered


def _gather_backward(how: How, _: None, gradient: Any) -> tuple:
    return (scatter(how.of_gradient(op=Average, rows=gradient.shape[0]), gradient),)


gather.defvjp(lambda how, array: (gather(how, array), None), _gather_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scatter(how: How, array: Any) -> jax.Array:
    """This rank's share of the rows, reduced over all ranks; the first ranks have one more."""
    rows, shape, dtype = array.shape[0], array.shape[1:], array.dtype
    share = rows // how.size + (how.rank < rows % how.size)
    # The engine overwrites its input, so this is a second result.
    scattered, _ = _handler.call(
        [array],
        [((share, *shape), dtype), (array.shape, dtype)],
        {0: 1},
        "sequential",
        how.engine,
        name=how.name,
        operation="reduce_scatter",
        **_reduction(how),
    )
    return scattered


def _scatter_backward(how: How, _: None, gradient: Any) -> tuple:
    factor = how.scale[0] * how.scale[1] * (how.size if how.op == Sum else 1)
    weighted = gradient * jnp.asarray(factor, gradient.dtype)
    # Every rank sends its share, which may have one row more than that of others, to all.
    shares = tuple(how.rows // how.size + (rank < how.rows % how.size) for rank in range(how.size))
    back = how.of_gradient(splits=(gradient.shape[0],) * how.size, received=shares)
    return (exchange(back, jnp.concatenate([weighted] * how.size)),)


scatter.defvjp(lambda how, array: (scatter(how, array), None), _scatter_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def exchange(how: How, array: Any) -> jax.Array:
    """Rows that other ranks have sent."""
    [received] = _handler.call(
        [array],
        [((sum(how.received), *array.shape[1:]), array.dtype)],
        {},
        "sequential",
        how.engine,
        name=how.name,
        operation="all_to_all",
        splits=numpy.array(how.splits, numpy.int64),
        room=numpy.array(how.received, numpy.int64),
    )
    return received


def _exchange_backward(how: How, _: None, gradient: Any) -> tuple:
    back = how.of_gradient(splits=how.received, received=how.splits)
    return (exchange(back, gradient),)


exchange.defvjp(lambda how, array: (exchange(how, array), None), _exchange_backward)

compiled = {
    function: jax.jit(function, static_argnums=0)
    for function in (reduce, spread, gather, scatter, exchange)
}
"""The same for calls outside of any program."""
