"""Training: gradients that are averaged over all ranks, wherever the program takes them from.

All three ways do the same, so a program uses one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Callable

import jax

from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.jax._names import name_for
from sirtaki.jax.trees import all_reduce_tree

if TYPE_CHECKING:
    import optax


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., Any]:
    """As ``jax.value_and_grad``, with value and gradients averaged over all ranks, in one call.

    What a function returns besides its value (``has_aux``) stays as it is.

    >>> import jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> value, gradient = hvd.value_and_grad(lambda x: (x ** 2).sum())(jnp.array([1.0, 2.0]))
    >>> value.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    differentiated = jax.value_and_grad(function, argnums, has_aux)

    @wraps(function)
    def reduced(*args: Any, **kwargs: Any) -> Any:
        result, gradients = differentiated(*args, **kwargs)
        value, aux = result if has_aux else (result, None)
        both = all_reduce_tree((value, gradients), op, name, process_set=process_set)
        return ((both[0], aux) if has_aux else both[0]), both[1]

    return reduced


def DistributedOptimizer(  # noqa: N802
    optimizer: optax.GradientTransformation,
    op: int = Average,
    backward_passes_per_step: int = 1,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer of optax's that first averages gradients over all ranks.

    With ``backward_passes_per_step``, gradients of so many updates are averaged on each rank
    before they travel; the updates in between change nothing.

    >>> import jax.numpy as jnp, optax, sirtaki.jax as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(optax.sgd(0.5))
    >>> parameters = jnp.ones(2)
    >>> updates, state = optimizer.update(jnp.ones(2), optimizer.init(parameters), parameters)
    >>> optax.apply_updates(parameters, updates).tolist()
    [0.5, 0.5]
    """
    import optax

    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ValueError(
            f"a {type(optimizer).__name__} is not an optimizer of optax's\n"
            "hint: pass what optax.sgd, optax.adam or optax.chain returns"
        )
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is at least 1, not {backward_passes_per_step}")
    inner = optax.with_extra_args_support(optimizer)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        reduced = all_reduce_tree(updates, op, name, process_set=process_set)
        return inner.update(reduced, state, params, **extra)

    distributed = optax.GradientTransformationExtraArgs(inner.init, update)
    if backward_passes_per_step == 1:
        return distributed
    several = optax.MultiSteps(distributed, backward_passes_per_step)
    return optax.GradientTransformationExtraArgs(several.init, several.update)


def data_parallel(
    model: Any,
    argnum: int = 0,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The same function of parameters and data, whose gradients are averaged over all ranks.

    ``argnum`` says which argument has the parameters: the first one of a loss, or of the ``apply``
    of a model of Flax's. Parameters have to be the same on all ranks to begin with; see
    ``broadcast_parameters``. For an optimizer of optax's, this is ``DistributedOptimizer``.

    >>> import jax, jax.numpy as jnp, sirtaki.jax as hvd
    >>> hvd.init()
    >>> loss = hvd.data_parallel(lambda weights, inputs: (weights * inputs).sum())
    >>> jax.grad(loss)(jnp.ones(2), jnp.array([3.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    if hasattr(model, "init") and hasattr(model, "update"):
        return DistributedOptimizer(model, op, name=name, process_set=process_set)
    if not callable(model) or hasattr(model, "init"):
        raise ValueError(
            "data_parallel needs a function of parameters and data, "
            f"not a {type(model).__name__}\nhint: pass the loss, or the apply method of a model"
        )

    @wraps(model)
    def parallel(*args: Any, **kwargs: Any) -> Any:
        if argnum >= len(args):
            raise ValueError(f"argument {argnum} has to hold the parameters; there is none")
        how = _Shared(op, name_for("allreduce_gradients", name), process_set)
        return model(*args[:argnum], _shared(how, args[argnum]), *args[argnum + 1 :], **kwargs)

    return parallel


class _Shared:
    """How the gradients of shared parameters are reduced."""

    def __init__(self, op: int, name: str, process_set: ProcessSet) -> None:
        self._what = (op, name, process_set)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and self._what == other._what

    def __hash__(self) -> int:
        return hash(self._what)

    def reduced(self, gradients: Any) -> Any:
        op, name, process_set = self._what
        return all_reduce_tree(gradients, op, name, process_set=process_set)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _shared(how: _Shared, parameters: Any) -> Any:
    return parameters


_shared.defvjp(
    lambda how, parameters: (parameters, None),
    lambda how, _, gradients: (how.reduced(gradients),),
)
