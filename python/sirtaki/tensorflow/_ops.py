"""Collectives as pairs of ops: one submits, the other waits. Without gradients.

Several tensors are submitted one after the other, and then waited for together, so that it does
not matter in which order ranks submit them.
"""

from __future__ import annotations

import functools
import re
import sys
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from sirtaki._core import job, operations
from sirtaki._core.names import name_for
from sirtaki._core.operations import OPERATIONS, Adasum
from sirtaki._core.process_sets import ProcessSet
from sirtaki.tensorflow._library import ops

_SINGLE = (tf.float16, tf.bfloat16, tf.float32)

_REDUCIBLE = frozenset(
    (
        tf.float16,
        tf.bfloat16,
        tf.float32,
        tf.float64,
        tf.int8,
        tf.uint8,
        tf.int32,
        tf.int64,
        tf.bool,
    )
)

_names: Any = weakref.WeakKeyDictionary()
"""How often each graph has used each name."""

_COMPILED = (
    "collectives cannot be compiled by XLA, which `jit_compile=True` asks for\n"
    "hint: use tf.function without jit_compile, or model.compile(..., jit_compile=False); what "
    "computes without communicating can be a compiled function of its own"
)


def unconverted(function: Any) -> Any:
    """The function, which AutoGraph leaves as it is: it decides nothing by values of tensors."""
    return functools.wraps(function)(tf.autograph.experimental.do_not_convert(function))


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of tensors without the other one that it returns, which is its gradient."""
    return tf.custom_gradient(function)


def tensors_of(values: Sequence[Any]) -> list[tf.Tensor]:
    """Variables, arrays and numbers as tensors."""
    return [tf.convert_to_tensor(value) for value in values]


def label(kind: str, name: str | None, tensor: Any, members: ProcessSet, alone: bool) -> str:
    """The name by which ranks recognise a tensor; ``alone`` means without the name's scope.

    In a graph it is made from names in that graph, which all ranks build in the same way.
    """
    if tf.executing_eagerly():
        return name_for(kind, name, members.process_set_id, waits=True)
    if name is None:
        name = re.sub("[^a-zA-Z0-9_/.]", "_", tensor.name) if tensor is not None else "noname"
    elif not alone and tf.get_current_name_scope():
        name = f"{tf.get_current_name_scope()}/{name}"
    used = _names.setdefault(tf.compat.v1.get_default_graph(), {})
    times = used[kind, name] = used.get((kind, name), -1) + 1
    return f"{kind}.{name}" + (f"_{times}" if times else "")


def _call(kind: str, members: ProcessSet, name: str, *words: Any) -> str:
    """What the kernel is to do, as text."""
    if members.process_set_id is None:
        raise ValueError("the process set was not added, or it was removed")
    if tf.executing_eagerly():
        members.engine()
        thread = "here"
    else:
        _refuse_compilation()
        thread = "main" if _is_ordered() else "here"
    return " ".join(map(str, (kind, members.process_set_id, thread, *words))) + "\n" + name


def _refuse_compilation() -> None:
    """Raises an error while a function that XLA is to compile is being traced."""
    frame = sys._getframe(1)
    while frame is not None:
        traced = frame.f_locals.get("self")
        if getattr(traced, "_jit_compile", None) is True and hasattr(traced, "python_function"):
            raise ValueError(_COMPILED)
        frame = frame.f_back  # type: ignore[assignment]


def _is_ordered() -> bool:
    """Whether such ops run one after the other: sessions run any number of them at once."""
    return tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function


def _finish(started: Sequence[tuple[Any, Any]]) -> list[tf.Tensor]:
    """Waits for everything that was submitted."""
    buffers = [buffer for submitted, _ in started for buffer in submitted]
    finish = ops.sirtaki_finish if _is_ordered() else ops.sirtaki_finish_later
    return list(finish(buffers=buffers, tickets=[ticket for _, ticket in started]))


class Reduction:
    """How to reduce tensors: operation, factors, and among which ranks."""

    def __init__(self, op: int, before: float, after: float, members: ProcessSet) -> None:
        if op not in OPERATIONS:
            raise ValueError(f"there is no reduction {op!r}; use Average, Sum, Min, Max, ...")
        if op == Adasum:
            operations.check_adasum(members)
        self.op, self.members, self.scale = op, members, (float(before), float(after))

    def words(self, tensors: Sequence[tf.Tensor]) -> tuple:
        """The operation for the kernel; factors have the precision of the product."""
        for tensor in tensors:
            if tensor.dtype not in _REDUCIBLE:
                raise ValueError(f"tensors of type {tensor.dtype.name} cannot be reduced")
        single = all(tensor.dtype in _SINGLE for tensor in tensors)
        scale = operations.single(self.scale) if single else self.scale
        return OPERATIONS[self.op], repr(scale[0]), repr(scale[1])


def reduce_each(
    tensors: Sequence[tf.Tensor], names: Sequence[str], reduction: Reduction
) -> list[tf.Tensor]:
    """Reduces tensors independently of each other.

    Those that come last are submitted first, because the last layers' gradients are the first to
    be computed.
    """
    started: list = [None] * len(tensors)
    for index in reversed(range(len(tensors))):
        words = (*reduction.words(tensors[index : index + 1]), "none")
        call = _call("all_reduce", reduction.members, names[index], *words)
        started[index] = ops.sirtaki_start(tensors=[tensors[index]], call=call)
    return _finish(started) if started else []


def reduce_together(
    tensors: Sequence[tf.Tensor], name: str, reduction: Reduction
) -> list[tf.Tensor]:
    """Reduces tensors that are done together or not at all."""
    words = (*reduction.words(tensors), "none")
    call = _call("all_reduce", reduction.members, name, *words)
    return _finish([ops.sirtaki_start(tensors=tensors, call=call)])


def spread_each(
    tensors: Sequence[tf.Tensor], root_rank: int, names: Sequence[str], members: ProcessSet
) -> list[tf.Tensor]:
    """The tensors of ``root_rank``."""
    root = members.root(root_rank)
    started = [
        ops.sirtaki_start(tensors=[tensor], call=_call("broadcast", members, name, root))
        for tensor, name in zip(tensors, names)
    ]
    return _finish(started) if started else []


def gather(tensors: Sequence[tf.Tensor], name: str, members: ProcessSet) -> list[tf.Tensor]:
    """The rows of all ranks, of several tensors together."""
    # A number counts as one row.
    rows = [tensor if tensor.shape.rank != 0 else tf.reshape(tensor, [1]) for tensor in tensors]
    results, _ = _new(rows, _call("all_gather", members, name))
    return [_like(result, tensor) for result, tensor in zip(results, rows)]


def exchange(
    tensor: tf.Tensor, splits: tf.Tensor | None, name: str, members: ProcessSet
) -> tuple[tf.Tensor, tf.Tensor]:
    """The rows from all ranks, and how many came from each."""
    results, counts = _new([tensor], _call("all_to_all", members, name), splits)
    return _like(results[0], tensor), counts


def scatter(tensors: Sequence[tf.Tensor], name: str, reduction: Reduction) -> list[tf.Tensor]:
    """This rank's share of the rows, reduced."""
    call = _call("reduce_scatter", reduction.members, name, *reduction.words(tensors))
    results, _ = _new(tensors, call)
    return [_like(result, tensor) for result, tensor in zip(results, tensors)]


def meet(members: ProcessSet, name: str) -> tf.Operation | None:
    """Waits for all ranks; in a graph, an op that does so."""
    met = _new([], _call("barrier", members, name))[1]
    return met.op if _in_graph() else None


def join(members: ProcessSet) -> tf.Tensor:
    """Announces that this rank has no more data; the last rank to do so."""
    return tf.reshape(tf.cast(_new([], _call("join", members, "join"))[1], tf.int32), [])


def place(what: str, process_set_id: int, name: str | None) -> tf.Tensor:
    """A number that describes this process's place when the graph runs."""
    return ops.sirtaki_place(call=f"{what} {process_set_id}", name=name)


def outlasts_ranks() -> bool:
    """Whether what is computed now may run again with other ranks: graphs in an elastic job."""
    return job.is_elastic() and _in_graph()


def size_of(members: ProcessSet) -> Any:
    """How many ranks there are: a number, or a tensor if that may change."""
    return _current("size", members) if outlasts_ranks() else members.size() or 1


def rank_of(members: ProcessSet) -> Any:
    """Which of the ranks this is: a number, or a tensor if that may change."""
    return _current("rank", members) if outlasts_ranks() else members.rank()


def _current(what: str, members: ProcessSet) -> tf.Tensor:
    return place(what, members.process_set_id or 0, None)


def _in_graph() -> bool:
    return not tf.executing_eagerly()


def _new(
    tensors: Sequence[tf.Tensor], call: str, splits: tf.Tensor | None = None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Submits tensors and waits for those that result."""
    splits = tf.constant([], tf.int64) if splits is None else tf.cast(splits, tf.int64)
    ticket = ops.sirtaki_start_new(tensors=tensors, splits=splits, call=call)
    finish = ops.sirtaki_finish_new if _is_ordered() else ops.sirtaki_finish_new_later
    results, counts = finish(ticket=ticket, T=[tensor.dtype for tensor in tensors])
    return list(results), counts


def _like(result: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """A result, of which the number of rows is not known before the graph runs."""
    if _in_graph() and tensor.shape.rank is not None:
        result.set_shape([None, *tensor.shape[1:]])
    return result
