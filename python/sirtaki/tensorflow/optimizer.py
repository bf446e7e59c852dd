"""Optimizers whose gradients are reduced over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki._core.operations import Adasum, Average, check_adasum
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow._ops import unconverted
from sirtaki.tensorflow.aggregation import Aggregation
from sirtaki.tensorflow.collectives import allreduce
from sirtaki.tensorflow.compression import Compression
from sirtaki.tensorflow.gradients import Gradients, Groups, groups_from

_Optimizer: Any = tf.compat.v1.train.Optimizer


class _Wrapper(_Optimizer):
    """An optimizer of ``tf.compat.v1`` around another one."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The gradients of the other optimizer."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Has the other optimizer apply gradients."""
        return self._optimizer.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """A slot of the other optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The slots of the other optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The variables of the other optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class _Reducing(_Wrapper):
    """Gradients are reduced when they are computed."""

    def __init__(
        self, optimizer: Any, name: str, use_locking: bool, gradients: Gradients, aggregation: Any
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._gradients, self._aggregation = gradients, aggregation

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradient of a variable on its rank."""
        self._gradients.keep_local(var)

    @unconverted
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The gradients, reduced over all ranks."""
        pairs = super().compute_gradients(*args, **kwargs)
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        reducing = self._aggregation.compute if self._aggregation else self._gradients.reduce
        return list(zip(reducing(gradients, variables), variables))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Has the other optimizer apply the gradients, where this is the step for it."""
        pairs = list(grads_and_vars)
        if not self._aggregation:
            return super().apply_gradients(pairs, global_step, name)
        # Outside the condition: slots are variables, which cannot be made inside one.
        self._optimizer._create_slots(
            [variable for gradient, variable in pairs if gradient is not None]
        )
        apply = super().apply_gradients
        return self._aggregation.apply(
            lambda: apply(pairs, global_step, name), [pair[0] for pair in pairs], global_step
        )


class _Adding(_Wrapper):
    """Adaptive sums of what the steps of all ranks changed, instead of their gradients."""

    def __init__(
        self, optimizer: Any, name: str, use_locking: bool, compression: Any, steps: int
    ) -> None:
        super().__init__(optimizer, name, use_locking)
        self._compression, self._steps = compression, steps

    @unconverted
    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies gradients, and every so many times adds up what that has changed."""
        pairs = [pair for pair in grads_and_vars if pair[0] is not None]
        variables = [variable for _, variable in pairs]
        with tf.compat.v1.variable_scope(f"adasum_{self._name}", reuse=tf.compat.v1.AUTO_REUSE):
            step = tf.compat.v1.get_variable(
                "step", (), tf.int64, tf.compat.v1.zeros_initializer(), trainable=False
            )
        starts = [self._zeros_slot(variable, "start", self._name) for variable in variables]
        remember = tf.cond(
            tf.equal(step, 0),
            lambda: tf.group(
                *[start.assign(variable) for start, variable in zip(starts, variables)]
            ),
            tf.no_op,
        )
        with tf.control_dependencies([remember]):
            applied = super().apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([applied]):
            counted = step.assign_add(1)
        with tf.control_dependencies([counted]):
            return tf.cond(
                tf.equal(tf.math.floormod(counted, self._steps), 0),
                lambda: self._add_up(starts, variables),
                tf.no_op,
            )

    def _add_up(self, starts: list[Any], variables: list[Any]) -> Any:
        changes = [variable - start for variable, start in zip(variables, starts)]
        done = []
        for change, start, variable in zip(changes, starts, variables):
            total = start + allreduce(change, compression=self._compression, op=Adasum)
            done.extend([start.assign(total), variable.assign(total)])
        return tf.group(*done)


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer that applies gradients reduced over all ranks.

    ``optimizer`` is one of ``tf.compat.v1.train`` or of Keras, version 2 or 3.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    >>> weight = tf.Variable(3.0)
    >>> update = optimizer.minimize(lambda: weight * weight, var_list=[weight])
    >>> float(weight)
    0.0
    """
    groups = groups_from(num_groups, groups)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients")
    if not isinstance(optimizer, _Optimizer):
        if op == Adasum:
            raise ValueError("Adasum is not supported with optimizers of Keras")
        from sirtaki.keras.optimizer import DistributedOptimizer as WithKeras

        return WithKeras(
            optimizer,
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            groups=groups,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    name = name or f"Distributed{type(optimizer).__name__}"
    if op == Adasum:
        check_adasum(process_set)
        return _Adding(optimizer, name, use_locking, compression, backward_passes_per_step)
    gradients = Gradients(
        name,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
        scale_local_gradients,
        (device_dense, device_sparse),
    )
    aggregation = None
    if backward_passes_per_step > 1:
        if tf.executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 needs a graph with optimizers of tf.compat.v1\n"
                "hint: use an optimizer of Keras"
            )
        aggregation = Aggregation(
            gradients, backward_passes_per_step, average_aggregated_gradients, name
        )
    return _Reducing(optimizer, name, use_locking, gradients, aggregation)
