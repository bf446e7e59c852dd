"""Collectives of whole trees: parameters, gradients, the state of an optimizer."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.dtypes import float0

from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.jax import collectives

Tree = TypeVar("Tree")


def all_reduce_tree(
    tree: Tree,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """Reduces all arrays of a tree over all ranks, in one call.

    >>> import jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> hvd.all_reduce_tree({"bias": jnp.ones(1), "scale": jnp.float32(2)})["scale"].item()
    2.0
    """
    leaves, shape = jax.tree.flatten(tree)
    # Integers have gradients of a type without elements.
    numbers = [jnp.asarray(leaf) for leaf in leaves if getattr(leaf, "dtype", None) != float0]
    if not numbers:
        return tree
    scale = (prescale_factor, postscale_factor)
    reduced = collectives.reduced("allreduce_tree", numbers, op, name, scale, process_set)
    found = iter(reduced)
    return jax.tree.unflatten(
        shape, [leaf if getattr(leaf, "dtype", None) == float0 else next(found) for leaf in leaves]
    )


def broadcast_parameters(
    tree: Tree,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tree:
    """A tree with the numbers of ``root_rank``: parameters, an optimizer's state, random keys.

    >>> import jax, sirtaki.jax as hvd
    >>> hvd.init()
    >>> tree = hvd.broadcast_parameters({"weights": [1.5, 2.5], "key": jax.random.key(7)})
    >>> tree["weights"][0].item(), tree["key"].dtype == jax.random.key(0).dtype
    (1.5, True)
    """
    leaves, shape = jax.tree.flatten(tree)
    if not leaves:
        return tree
    arrays = [_data(leaf) for leaf in leaves]
    spread = collectives.spread("broadcast_tree", arrays, root_rank, name, process_set)
    return jax.tree.unflatten(shape, [_like(*pair) for pair in zip(leaves, spread)])


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Any) -> jax.Array:
    """What travels for a leaf."""
    if _is_key(leaf):
        return jax.random.key_data(leaf)
    try:
        return jnp.asarray(leaf)
    except TypeError:
        raise ValueError(
            f"a {type(leaf).__name__} in a tree of parameters cannot travel as an array\n"
            "hint: send it with broadcast_object"
        ) from None


def _like(leaf: Any, data: jax.Array) -> jax.Array:
    return (
        jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else data
    )
