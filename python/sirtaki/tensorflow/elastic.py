"""Training that goes on after a failure, with the functions of ``horovod.tensorflow.elastic``.

>>> import tensorflow as tf, sirtaki.tensorflow as hvd
>>> hvd.init()
>>> weight = tf.Variable(0.0)
>>> @hvd.elastic.run
... def train(state):
...     while state.batch < 3:
...         weight.assign_add(hvd.allreduce(tf.constant(1.0)))
...         state.batch += 1
...         state.commit()
>>> state = hvd.elastic.TensorFlowState([weight], batch=0)
>>> train(state)
>>> float(weight)
3.0
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from sirtaki._core import elastic as _core
from sirtaki._core import job
from sirtaki._core.elastic import ObjectState
from sirtaki._errors import Error
from sirtaki.tensorflow.functions import broadcast_object, broadcast_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A training function whose first argument is a state, and which survives failures.

    When a collective fails, ranks take back what they committed last, join the job again, and the
    function is called again.
    """
    return _core.run(func)


def _failure_in(error: Exception) -> Error | None:
    """The failed collective that an exception of TensorFlow's is about, if it is about one."""
    if not isinstance(error, tf.errors.OpError):
        return None
    if "Sirtaki" not in f"{error.message}{getattr(error.op, 'type', '')}":
        return None
    refused = isinstance(error, tf.errors.FailedPreconditionError)
    return _core.failed(error.message, refused)


job.world.translations.append(_failure_in)


def translated(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with failures of collectives as Sirtaki's errors and not TensorFlow's."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except tf.errors.OpError as error:
            failure = _failure_in(error)
            if failure is None:
                raise
            raise failure from error

    return wrapper


class TensorFlowState(ObjectState):
    """Variables, and attributes of any kind that can be pickled."""

    def __init__(  # noqa: D107
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        self.variables = list(variables or tf.compat.v1.global_variables())
        in_graph = not tf.executing_eagerly()
        self.session = session or (tf.compat.v1.get_default_session() if in_graph else None)
        self._broadcast = broadcast_variables(self.variables, 0) if in_graph else None
        self._save_variables()
        super().__init__(bcast_object=broadcast_object, get_rank=job.rank, **kwargs)

    def save(self) -> None:
        """Keeps a copy of everything."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Takes back what was saved last."""
        for variable, value in zip(self.variables, self._values):
            if self.session is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)
        super().restore()

    @translated
    def sync(self) -> None:
        """Gives all ranks what rank 0 has."""
        if self.session is None:
            broadcast_variables(self.variables, root_rank=0)
        else:
            self.session.run(self._broadcast)
        self._save_variables()
        super().sync()

    def _save_variables(self) -> None:
        if self.session is None:
            self._values = [tf.convert_to_tensor(value).numpy() for value in self.variables]
        else:
            self._values = self.session.run(self.variables)


class TensorFlowKerasState(ObjectState):
    """A model of Keras, its optimizer, and attributes of any kind that can be pickled."""

    def __init__(  # noqa: D107
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model has no weights yet\nhint: call model.build(input_shape)")
        self.model, self.optimizer, self.backend = model, optimizer or model.optimizer, backend
        self._save_variables()
        super().__init__(bcast_object=broadcast_object, get_rank=job.rank, **kwargs)

    def save(self) -> None:
        """Keeps a copy of everything."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Takes back what was saved last."""
        for variable, value in zip(self._variables(), self._values):
            variable.assign(value)
        super().restore()

    @translated
    def sync(self) -> None:
        """Gives all ranks what rank 0 has."""
        self._build()
        broadcast_variables(self._variables(), root_rank=0)
        self._save_variables()
        super().sync()

    def _build(self) -> None:
        """Makes variables of the optimizer that others may have already."""
        from sirtaki.keras import _variables

        if self.optimizer is not None:
            _variables.build(self.optimizer, self.model.trainable_variables)

    def _variables(self) -> list[Any]:
        own = getattr(self.optimizer, "variables", [])
        return [*self.model.variables, *(own() if callable(own) else own)]

    def _save_variables(self) -> None:
        self._values = [tf.convert_to_tensor(value).numpy() for value in self._variables()]
