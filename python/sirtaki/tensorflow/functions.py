"""Variables and any other objects, made equal on all ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from sirtaki._core import objects
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow import _ops
from sirtaki.tensorflow._ops import unconverted

_Hook: Any = tf.compat.v1.train.SessionRunHook


@unconverted
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Replaces variables by those of ``root_rank``; in a graph, an op that does so.

    ``inplace`` has no meaning here: there is one way.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> weight = tf.Variable(float(hvd.rank()))
    >>> hvd.broadcast_variables([weight], root_rank=0)
    >>> float(weight)
    0.0
    """
    variables = list(variables)
    names = _names(variables)
    values = _ops.tensors_of(variables)
    received = _ops.spread_each(values, root_rank, names, process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, received)]
    return None if tf.executing_eagerly() else tf.group(*assigned)


def _names(variables: Sequence[Any]) -> list[str]:
    """A different name for each variable: the same on all ranks, though Keras counts layers."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for variable in variables:
        name = getattr(variable, "path", None) or re.sub(r":\d+$", "", variable.name)
        times = seen[name] = seen.get(name, -1) + 1
        names.append(f"broadcast.{name}" + (f"_{times}" if times else ""))
    return names


@unconverted
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Replaces variables by those of ``root_rank``; their new values.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> [value.numpy().tolist() for value in hvd.broadcast_([tf.Variable([1, 2])], root_rank=0)]
    [[1, 2]]
    """
    done = broadcast_variables(variables, root_rank, process_set)
    with tf.control_dependencies([] if done is None else [done]):
        return [tf.identity(variable.read_value()) for variable in variables]


@unconverted
def broadcast_global_variables(root_rank: int) -> Any:
    """An op that replaces all global variables of a graph by those of ``root_rank``."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "there are no global variables in eager mode\n"
            "hint: use hvd.broadcast_variables(model.variables, root_rank=0)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(_Hook):
    """Gives all ranks the variables of ``root_rank`` when a session begins."""

    def __init__(self, root_rank: int, device: str = "") -> None:  # noqa: D107
        super().__init__()
        self.root_rank, self.device = root_rank, device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds what is needed to the graph."""
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph is not graph:
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Replaces the variables."""
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of ``root_rank``, of any type that can be pickled.

    ``session`` has no meaning here: objects do not travel through graphs.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.broadcast_object({"epoch": 3})
    {'epoch': 3}
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """A function that returns the object of ``root_rank``.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.broadcast_object_fn()([1, 2])
    [1, 2]
    """
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The objects of all ranks, in their order.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.allgather_object("mine") == ["mine"] * hvd.size()
    True
    """
    return objects.allgather_object(obj, name, process_set)
