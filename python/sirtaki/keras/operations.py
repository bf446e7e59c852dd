"""Collectives for tensors of the framework below Keras, and whatever it can make a tensor of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sirtaki._core.operations import Average, operation
from sirtaki.keras import _variables
from sirtaki.keras._library import IS_3, front_end, keras
from sirtaki.keras.compression import Compression


def _tensor(value: Any) -> Any:
    if IS_3:
        return keras.ops.convert_to_tensor(value)
    import tensorflow as tf

    return tf.convert_to_tensor(value)


def _function(*names: str) -> Any:
    """A function of the framework's module, under the name that it has there."""
    module = front_end()
    return next(getattr(module, name) for name in names if hasattr(module, name))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """The value, reduced over all ranks; averaged by default.

    >>> import sirtaki.keras as hvd
    >>> hvd.init()
    >>> float(hvd.allreduce(2.0))
    2.0
    """
    small, context = compression.compress(_tensor(value))
    result = _function("allreduce", "all_reduce")(
        small,
        name=name,
        op=operation(op, average),
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )
    return compression.decompress(result, context)


def allgather(value: Any, name: str | None = None) -> Any:
    """The values of all ranks, one after the other along the first dimension."""
    return _function("allgather", "all_gather")(_tensor(value), name=name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The value of ``root_rank``."""
    return front_end().broadcast(_tensor(value), root_rank, name=name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """This rank's part of the value reduced over all ranks."""
    return _function("reducescatter", "reduce_scatter")(_tensor(value), name=name, op=op)


def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Gives all ranks the values that variables have on ``root_rank``.

    >>> import keras, sirtaki.keras as hvd
    >>> hvd.init()
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    _variables.broadcast(variables, root_rank)


def broadcast_global_variables(root_rank: int) -> Any:
    """Gives all ranks the variables of ``root_rank``, in a session of TensorFlow 1."""
    hvd = front_end()
    if not hasattr(hvd, "broadcast_global_variables"):
        raise RuntimeError(
            "only TensorFlow knows global variables\n"
            "hint: use broadcast_variables(model.variables, root_rank)"
        )
    spread = hvd.broadcast_global_variables(root_rank)
    import tensorflow as tf

    if tf.executing_eagerly():
        return spread
    return keras.backend.get_session().run(spread)
