"""``DistributedOptimizer``: an optimizer of Keras that reduces gradients before it uses them.

An optimizer gets a new class, derived from its own and with the same name: so it keeps its state,
is still what it was to ``isinstance``, and is saved as what it was, for programs without Sirtaki.

Gradients are reduced at the only two doors through which they come in, ``apply`` and, on JAX,
``stateless_apply``. The second one calls the first for most optimizers, but not for those that
scale the loss, so each marks that the work is done. With Keras's own accumulation of gradients,
most of those that come in are only added up: then the sum is reduced, where it is about to be
clipped and used.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sirtaki._core.operations import Average, Sum
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.keras import _keras2
from sirtaki.keras._library import FRAMEWORK, IS_3, keras
from sirtaki.keras._reduction import Settings, reduce
from sirtaki.keras._variables import short
from sirtaki.keras.compression import Compression


class Distributed:
    """What is added to the class of an optimizer of Keras 3."""

    _sirtaki: Settings
    _sirtaki_done = False

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Reduces gradients and applies them."""
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        known = trainable_variables or getattr(self, "_trainable_variables", [])
        with self._reduced_once(grads, known) as reduced:
            return super().apply(reduced, trainable_variables)  # type: ignore[misc]

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        """Reduces gradients and computes what follows from them."""
        known = self._trainable_variables  # type: ignore[attr-defined]
        with self._reduced_once(list(grads), known) as reduced:
            return super().stateless_apply(  # type: ignore[misc]
                optimizer_variables, reduced, trainable_variables
            )

    def register_local_var(self, var: Any) -> None:
        """Gradients of this variable stay on their rank."""
        _keras2.register_local(self, var)

    @contextmanager
    def _reduced_once(self, gradients: list[Any], variables: list[Any]) -> Iterator[list[Any]]:
        if self._sirtaki_done or self._accumulates():
            yield gradients
            return
        reduced = reduce(self._sirtaki, gradients, variables, _names(variables))
        self._sirtaki_done = True
        try:
            yield reduced
        finally:
            self._sirtaki_done = False

    def _accumulates(self) -> bool:
        return bool(getattr(self, "gradient_accumulation_steps", None))

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        self._sirtaki_variables = _Unseen(trainable_variables)
        return super()._backend_apply_gradients(  # type: ignore[misc]
            grads, trainable_variables
        )

    def _clip_gradients(self, grads: Any) -> Any:
        if self._accumulates():
            grads = self._reduce_sum(list(grads))
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _reduce_sum(self, gradients: list[Any]) -> list[Any]:
        variables = self._sirtaki_variables.items
        do = functools.partial(reduce, self._sirtaki, variables=variables, names=_names(variables))
        if FRAMEWORK != "jax":
            return do(gradients)
        # There, both cases are computed in every step, and one is chosen afterwards.
        import jax

        steps = self.gradient_accumulation_steps  # type: ignore[attr-defined]
        is_last = (self._iterations + 1) % steps == 0  # type: ignore[attr-defined]
        return jax.lax.cond(is_last, do, list, gradients)


class _Unseen:
    """Holds variables so that Keras does not count them as the optimizer's own."""

    def __init__(self, items: Any) -> None:
        self.items = list(items)


def _names(variables: list[Any]) -> list[str]:
    return [f"{number}.{short(variable)}" for number, variable in enumerate(variables)]


def is_distributed(optimizer: Any) -> bool:
    """Whether an optimizer reduces gradients."""
    return getattr(type(optimizer), "_sirtaki", None) is not None


def distribute(optimizer: Any, settings: Settings) -> Any:
    """Makes an optimizer reduce its gradients, and returns it."""
    kind = type(optimizer)
    about = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_sirtaki": settings,
    }
    added = Distributed if IS_3 else _keras2.Distributed
    make: Any = type(kind)
    optimizer.__class__ = make(kind.__name__, (added, kind), about)
    return optimizer


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local: tuple[int, ...] = (),
) -> Any:
    """The optimizer, which from now on reduces gradients over all ranks before it applies them.

    With ``backward_passes_per_step``, gradients of that many batches are added up, or averaged
    with ``average_aggregated_gradients``, before they are reduced and applied.
    ``device_dense`` and ``device_sparse`` are accepted for scripts written for Horovod.

    >>> import keras, sirtaki.keras as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size()))
    >>> isinstance(optimizer, keras.optimizers.Adam)
    True
    """
    if is_distributed(optimizer):
        raise ValueError(
            "this optimizer is distributed already\nhint: call DistributedOptimizer only once"
        )
    if op not in (Average, Sum):
        raise ValueError("op must be Average or Sum")
    groups = groups if groups is not None else num_groups or None
    if groups is not None and not isinstance(groups, list) and groups <= 0:
        raise ValueError("groups must be a number above zero or a list of lists of variables")
    settings = Settings(
        name or f"Distributed{type(optimizer).__name__}",
        op,
        compression,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
        local,
        scale_local_gradients,
    )
    passes = backward_passes_per_step
    if passes < 1:
        raise ValueError(f"backward_passes_per_step must be at least 1, not {passes}")
    if not IS_3:
        return _keras2.aggregating(
            distribute(optimizer, settings), passes, average_aggregated_gradients
        )
    if passes > 1:
        settings = _accumulating(optimizer, settings, passes, average_aggregated_gradients)
    return distribute(optimizer, settings)


def _accumulating(optimizer: Any, settings: Settings, passes: int, averages: bool) -> Settings:
    """Several batches per step, by Keras's own means, which average gradients of batches."""
    if optimizer.gradient_accumulation_steps or optimizer.built:
        raise ValueError(
            "backward_passes_per_step needs an optimizer that is new and does not accumulate\n"
            "hint: give the optimizer gradient_accumulation_steps instead"
        )
    optimizer.gradient_accumulation_steps = passes
    return settings if averages else settings._replace(factor=float(passes))


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any
) -> Any:
    """A ``DistributedOptimizer`` that leaves gradients of some layers on their ranks.

    They are divided by the number of ranks, unless ``scale_local_gradients`` is false.
    """
    layers = [] if local_layers is None else local_layers
    layers = [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"local_layers must be layers of Keras, not {type(layer).__name__}")
    local = tuple(id(variable) for layer in layers for variable in layer.trainable_variables)
    return DistributedOptimizer(optimizer, *args, **{**kwargs, "local": local})


def _follow_loss_scaling() -> None:
    """Has an optimizer that scales the loss reduce gradients itself, not the one inside it.

    Whether gradients are finite is decided by the outer one, and has to be decided alike on all
    ranks. Keras puts it around a model's optimizer by itself, for mixed precision.
    """
    kind = keras.optimizers.LossScaleOptimizer
    begin = kind.__init__

    @functools.wraps(begin)
    def initialize(self: Any, inner_optimizer: Any, *args: Any, **kwargs: Any) -> None:
        settings = getattr(type(inner_optimizer), "_sirtaki", None)
        if settings is not None:
            inner_optimizer.__class__ = type(inner_optimizer).__bases__[-1]
        begin(self, inner_optimizer, *args, **kwargs)
        if settings is not None and not is_distributed(self):
            distribute(self, settings)

    kind.__init__ = initialize


if IS_3:
    _follow_loss_scaling()
