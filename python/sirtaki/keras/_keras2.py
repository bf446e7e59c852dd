"""Optimizers of Keras 2, which is part of TensorFlow up to 2.15 and later called ``tf_keras``.

There, gradients are reduced where an optimizer computes them. A program that computes them itself
only calls ``apply_gradients``, which then does it.
"""

from __future__ import annotations

from typing import Any, Callable

from sirtaki.keras._reduction import Settings, reduce
from sirtaki.keras._variables import short


class Distributed:
    """What is added to the class of an optimizer of Keras 2."""

    _sirtaki: Settings
    _agg_helper: Any = None
    _sirtaki_done = False

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple]:
        """Computes gradients and reduces them."""
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple]:
        import tensorflow as tf

        tape = tf.GradientTape() if tape is None else tape
        own: Any = super()
        if hasattr(own, "_compute_gradients"):
            pairs = own._compute_gradients(loss, var_list, grad_loss, tape=tape)
        else:
            pairs = own.compute_gradients(loss, var_list, tape=tape)
        return self._reduced(list(pairs))

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The same in a graph of TensorFlow 1."""
        gradients = super().get_gradients(loss, params)  # type: ignore[misc]
        return [gradient for gradient, _ in self._reduced(list(zip(gradients, params)))]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies gradients, which are reduced before unless they have been already."""
        pairs = list(grads_and_vars)
        if not self._sirtaki_done:
            pairs = self._reduced(pairs)
        self._sirtaki_done = False
        own: Any = super()
        if self._agg_helper is None:
            return own.apply_gradients(pairs, *args, **kwargs)
        return self._agg_helper.apply(
            self, [v for _, v in pairs], lambda: own.apply_gradients(pairs, *args, **kwargs)
        )

    def register_local_var(self, var: Any) -> None:
        """Gradients of this variable stay on their rank."""
        register_local(self, var)

    def _reduced(self, pairs: list[tuple]) -> list[tuple]:
        self._sirtaki_done = True
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        names = [f"{number}.{short(variable)}" for number, variable in enumerate(variables)]

        def shared(gradients: list[Any]) -> list[Any]:
            return reduce(self._sirtaki, gradients, variables, names)

        if self._agg_helper is None:
            return list(zip(shared(gradients), variables))
        return list(zip(self._agg_helper.add(gradients, variables, shared), variables))


def register_local(optimizer: Any, variable: Any) -> None:
    """Adds to the variables whose gradients stay on their rank."""
    kind = type(optimizer)
    kind._sirtaki = kind._sirtaki._replace(local=(*kind._sirtaki.local, id(variable)))


class Aggregation:
    """Gradients of several batches, added up before they are reduced and applied together."""

    def __init__(self, passes: int, averages: bool) -> None:
        import tensorflow as tf

        self._passes, self._averages = passes, averages
        self._sums: list[Any] = []
        self.counter = tf.Variable(0, trainable=False, dtype=tf.int32)

    def add(
        self, gradients: list[Any], variables: list[Any], shared: Callable[[list], list]
    ) -> list[Any]:
        """The sums so far; those of the last batch are reduced, and then start at zero again."""
        import tensorflow as tf

        if not self._sums:
            with tf.init_scope():
                self._sums = [
                    tf.Variable(tf.zeros_like(one), trainable=False) for one in variables
                ]
        there = [number for number, gradient in enumerate(gradients) if gradient is not None]
        for number in there:
            self._sums[number].assign_add(tf.convert_to_tensor(gradients[number]))

        def last() -> list[Any]:
            sums = [self._sums[number].read_value() for number in there]
            if self._averages:
                sums = [one / tf.cast(self._passes, one.dtype) for one in sums]
            total = [None] * len(gradients)
            for number, one in zip(there, sums):
                total[number] = one
            done = [one for one in shared(total) if one is not None]
            with tf.control_dependencies(done):
                for one in self._sums:
                    one.assign(tf.zeros_like(one))
                self.counter.assign(0)
            return done

        self.counter.assign_add(1)
        is_last = tf.equal(self.counter, self._passes)
        done = tf.cond(
            is_last, last, lambda: [self._sums[number].read_value() for number in there]
        )
        result = [None] * len(gradients)
        for number, one in zip(there, done if isinstance(done, list) else [done]):
            result[number] = one
        return result

    def apply(self, optimizer: Any, variables: list[Any], step: Callable[[], Any]) -> Any:
        """Makes a step after the last batch; after the others, only counts."""
        import tensorflow as tf

        with tf.init_scope():
            optimizer.iterations  # noqa: B018
            if hasattr(optimizer, "build"):
                optimizer.build(variables)

        def full() -> Any:
            step()
            return tf.constant(0)

        def only_count() -> Any:
            optimizer.iterations.assign_add(1)
            return tf.constant(0)

        return tf.cond(tf.equal(self.counter, 0), full, only_count)


def aggregating(optimizer: Any, passes: int, averages: bool) -> Any:
    """The optimizer, which makes a step only after several batches if there are several."""
    if passes > 1:
        optimizer._agg_helper = Aggregation(passes, averages)
    return optimizer
