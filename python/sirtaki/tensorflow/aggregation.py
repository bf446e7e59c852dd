"""Gradients that are added up on each rank for several steps, and then reduced, in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from sirtaki.tensorflow.gradients import Gradients

_v1 = tf.compat.v1


class Aggregation:
    """Local sums of gradients, and which step this is."""

    def __init__(  # noqa: D107
        self, gradients: Gradients, steps: int, averages: bool, name: str
    ) -> None:
        self._gradients, self._steps, self._averages = gradients, steps, averages
        self._name = name
        self._counter: Any = None

    def compute(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """In every so many steps the reduced sums; in others the gradients of this step."""
        present = [at for at, gradient in enumerate(gradients) if gradient is not None]
        new = [tf.convert_to_tensor(gradients[at]) for at in present]
        sums = self._variables(new)
        added = [total.assign_add(value) for total, value in zip(sums, new)]
        with tf.control_dependencies(added):
            counted = self._counter.assign_add(1)
        with tf.control_dependencies([counted]):
            chosen = tf.cond(
                tf.equal(self._counter.read_value(), self._steps),
                lambda: self._reduce_and_clear(sums, [variables[at] for at in present]),
                lambda: [tf.identity(value) for value in new],
            )
        results: list[Any] = [None] * len(gradients)
        for at, value in zip(present, chosen if isinstance(chosen, (list, tuple)) else [chosen]):
            results[at] = value
        return results

    def _variables(self, gradients: list[tf.Tensor]) -> list[Any]:
        local = {"trainable": False, "collections": [_v1.GraphKeys.LOCAL_VARIABLES]}
        with _v1.variable_scope(f"aggregation_{self._name}", reuse=_v1.AUTO_REUSE):
            zero = _v1.zeros_initializer()
            self._counter = _v1.get_variable(
                "counter", (), tf.int32, initializer=zero, use_resource=True, **local
            )
            return [
                _v1.get_variable(
                    str(at),
                    gradient.shape,
                    gradient.dtype,
                    initializer=zero,
                    use_resource=True,
                    **local,
                )
                for at, gradient in enumerate(gradients)
            ]

    def _reduce_and_clear(self, sums: list[Any], variables: list[Any]) -> list[tf.Tensor]:
        reduced = self._gradients.reduce([total.read_value() for total in sums], variables)
        divisor = self._steps if self._averages else 1
        reduced = [value / tf.cast(divisor, value.dtype) for value in reduced]
        with tf.control_dependencies(reduced):
            cleared = [total.assign(tf.zeros_like(total)) for total in sums]
            cleared.append(self._counter.assign(0))
        with tf.control_dependencies(cleared):
            return [tf.identity(value) for value in reduced]

    def apply(self, apply: Callable[[], Any], gradients: Sequence[Any], global_step: Any) -> Any:
        """Applies gradients in every so many steps; in others it only counts the step."""

        def count() -> Any:
            return tf.no_op() if global_step is None else global_step.assign_add(1).op

        def applied() -> Any:
            with tf.control_dependencies([apply()]):
                return tf.no_op()

        with tf.control_dependencies([value for value in gradients if value is not None]):
            return tf.cond(tf.equal(self._counter.read_value(), 0), applied, count)
