"""The collectives, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki._core.operations import Average, Sum, check_scatter, operation
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow import _ops, sparse
from sirtaki.tensorflow._ops import Reduction, unconverted, with_gradient
from sirtaki.tensorflow.compression import Compression


@unconverted
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The reduction of a tensor, or of ``tf.IndexedSlices``, over all ranks.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> bool(hvd.allreduce(tf.constant(2.0), op=hvd.Average) == 2)
    True
    """
    op = operation(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        sparse.check(op, prescale_factor, postscale_factor)
        with tf.device(device_sparse):
            return sparse.reduce_each([tensor], [name], op, process_set, ignore_name_scope)[0]
    with tf.device(device_dense):
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = _allreduce(
            small,
            name,
            op,
            prescale_factor,
            postscale_factor,
            ignore_name_scope,
            process_set,
        )
        return compression.decompress(reduced, context)


@unconverted
def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """As ``allreduce``, for dense tensors, and a sum by default."""
    tensor = tf.convert_to_tensor(tensor)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    full = _ops.label("allreduce", name, tensor, process_set, ignore_name_scope)

    @with_gradient
    def reduce(tensor: tf.Tensor) -> tuple:
        def backward(gradient: tf.Tensor) -> tf.Tensor:
            return _ops.reduce_each([gradient], [f"{full}.gradient"], reduction)[0]

        return _ops.reduce_each([tensor], [full], reduction)[0], backward

    return reduce(tensor)


@unconverted
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> Any:
    """Reductions of several tensors, which are done together or not at all.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> len(hvd.grouped_allreduce([tf.constant(2.0), tf.constant([1, 2])], op=hvd.Sum))
    2
    """
    if not tensors:
        return tensors
    op = operation(op, average)
    results = list(tensors)
    slices = [at for at, value in enumerate(tensors) if isinstance(value, tf.IndexedSlices)]
    dense = [at for at in range(len(tensors)) if at not in slices]
    if slices:
        sparse.check(op, prescale_factor, postscale_factor)
        with tf.device(device_sparse):
            chosen = [tensors[at] for at in slices]
            reduced = sparse.reduce_together(chosen, name, op, process_set, ignore_name_scope)
            for at, value in zip(slices, reduced):
                results[at] = value
    if dense:
        reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
        with tf.device(device_dense):
            chosen = _ops.tensors_of([tensors[at] for at in dense])
            packed = [compression.compress(tensor) for tensor in chosen]
            small = [tensor for tensor, _ in packed]
            reduced = _reduced_together(small, name, reduction, ignore_name_scope)
            for at, value, (_, context) in zip(dense, reduced, packed):
                results[at] = compression.decompress(value, context)
    return results


def _reduced_together(
    tensors: list[tf.Tensor], name: str | None, reduction: Reduction, alone: bool
) -> list[tf.Tensor]:
    full = _ops.label("grouped_allreduce", name, tensors[0], reduction.members, alone)

    @with_gradient
    def reduce(*tensors: tf.Tensor) -> tuple:
        def backward(*gradients: tf.Tensor) -> list[tf.Tensor]:
            return _ops.reduce_together(gradients, f"{full}.gradient", reduction)

        return _ops.reduce_together(tensors, full, reduction), backward

    return list(reduce(*tensors))


@unconverted
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The rows of all ranks, one below the other; ranks may have different numbers of rows.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.allgather(tf.zeros([2, 3])).shape == [2 * hvd.size(), 3]
    True
    """
    return _gathered([tensor], "allgather", name, process_set, ignore_name_scope)[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows of all ranks, of several tensors, which are done together or not at all.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> len(hvd.grouped_allgather([tf.zeros([2, 3]), tf.zeros([1])]))
    2
    """
    if not tensors:
        return tensors
    return _gathered(tensors, "grouped_allgather", name, process_set, ignore_name_scope)


def _gathered(
    tensors: Sequence[Any], kind: str, name: str | None, members: ProcessSet, alone: bool
) -> Sequence[tf.Tensor]:
    tensors = _ops.tensors_of(tensors)
    full = _ops.label(kind, name, tensors[0], members, alone)

    @with_gradient
    def gather(*tensors: tf.Tensor) -> tuple:
        def backward(*gradients: tf.Tensor) -> list[tf.Tensor]:
            names = [f"{full}.gradient.{number}" for number in range(len(gradients))]
            mean = Reduction(Average, 1.0, 1.0, members)
            reduced = _ops.reduce_each(gradients, names, mean)
            rows = [tf.reshape(tf.shape(tensor)[:1], [-1]) for tensor in tensors]
            rows = [
                tf.ones([1], tf.int32) if t.shape.rank == 0 else r for t, r in zip(tensors, rows)
            ]
            counts = _ops.gather([tf.stack(rows, axis=1)], f"{full}.rows", members)[0]
            return [
                _share(value, counts[:, number], members, tensor)
                for number, (value, tensor) in enumerate(zip(reduced, tensors))
            ]

        results = _ops.gather(tensors, full, members)
        return (results if len(results) > 1 else results[0]), backward

    results = gather(*tensors)
    return results if len(tensors) > 1 else [results]


def _share(value: tf.Tensor, counts: tf.Tensor, members: ProcessSet, like: tf.Tensor) -> tf.Tensor:
    """The rows of this rank, from those of all."""
    rank = _ops.rank_of(members)
    begin = tf.reduce_sum(counts[:rank])
    return tf.reshape(value[begin : begin + counts[rank]], tf.shape(like))


@unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The tensor of ``root_rank``.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> int(hvd.broadcast(tf.constant(hvd.rank()), root_rank=0))
    0
    """
    tensor = tf.convert_to_tensor(tensor)
    full = _ops.label("broadcast", name, tensor, process_set, ignore_name_scope)

    @with_gradient
    def spread(tensor: tf.Tensor) -> tuple:
        def backward(gradient: tf.Tensor) -> tf.Tensor:
            mean = Reduction(Average, 1.0, 1.0, process_set)
            reduced = _ops.reduce_each([gradient], [f"{full}.gradient"], mean)[0]
            root = process_set.root(root_rank)
            if _ops.outlasts_ranks():
                is_root = tf.equal(_ops.rank_of(process_set), root)
                return tf.where(is_root, reduced, tf.zeros_like(reduced))
            if process_set.rank() == root:
                return reduced
            # In a session, what nothing depends on does not run, and the others would wait.
            with tf.control_dependencies([reduced]):
                return tf.identity(tf.zeros_like(reduced))

        return _ops.spread_each([tensor], root_rank, [full], process_set)[0], backward

    return spread(tensor)


@unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to all ranks, and returns those received.

    ``splits`` says how many go to each rank, by default the same number. If it is given, the
    numbers of rows received are returned, too.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> int(tf.size(hvd.alltoall(tf.zeros([hvd.size()])))) == hvd.size()
    True
    """
    tensor = tf.convert_to_tensor(tensor)
    given = None if splits is None else tf.convert_to_tensor(splits)
    if given is not None and given.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"splits must be integers of 32 or 64 bits, not {given.dtype.name}")
    full = _ops.label("alltoall", name, tensor, process_set, ignore_name_scope)

    @with_gradient
    def exchange(tensor: tf.Tensor) -> tuple:
        received, counts = _ops.exchange(tensor, given, full, process_set)

        def backward(gradient: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            back, _ = _ops.exchange(gradient, counts, f"{full}.gradient", process_set)
            # Rows that went to no rank have none.
            missing = tf.shape(tensor)[0] - tf.shape(back)[0]
            paddings = tf.pad(tf.reshape(missing, [1, 1]), [[0, tf.rank(tensor) - 1], [1, 0]])
            return tf.pad(back, paddings)

        return (received, counts), backward

    received, counts = exchange(tensor)
    return received if given is None else (received, tf.cast(counts, given.dtype))


@unconverted
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's share of the rows of a tensor, reduced over all ranks.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.reducescatter(tf.ones([2 * hvd.size()])).shape == [2]
    True
    """
    with tf.device(device_dense):
        small, context = compression.compress(tf.convert_to_tensor(tensor))
        reduction = _scattering(op, prescale_factor, postscale_factor, process_set)
        result = _scattered([small], "reducescatter", name, reduction, ignore_name_scope)[0]
        return compression.decompress(result, context)


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's share of the rows of several tensors, done together or not at all.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> len(hvd.grouped_reducescatter([tf.ones([4]), tf.ones([8])]))
    2
    """
    if not tensors:
        return tensors
    with tf.device(device_dense):
        packed = [compression.compress(tensor) for tensor in _ops.tensors_of(tensors)]
        reduction = _scattering(op, prescale_factor, postscale_factor, process_set)
        small = [tensor for tensor, _ in packed]
        results = _scattered(small, "grouped_reducescatter", None, reduction, False)
        pairs = zip(results, packed)
        return [compression.decompress(result, context) for result, (_, context) in pairs]


def _scattering(op: int, before: float, after: float, members: ProcessSet) -> Reduction:
    check_scatter("reducescatter", op)
    return Reduction(op, before, after, members)


def _scattered(
    tensors: list[tf.Tensor], kind: str, name: str | None, reduction: Reduction, alone: bool
) -> Sequence[tf.Tensor]:
    if any(tensor.shape.rank == 0 for tensor in tensors):
        raise ValueError("a number has no rows to scatter\nhint: use allreduce")
    members = reduction.members
    full = _ops.label(kind, name, tensors[0], members, alone)

    @with_gradient
    def scatter(*tensors: tf.Tensor) -> tuple:
        def backward(*gradients: tf.Tensor) -> list[tf.Tensor]:
            size = _ops.size_of(members) if reduction.op == Sum else 1
            factor = reduction.scale[0] * reduction.scale[1] * tf.cast(size, tf.float64)
            scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
            return _ops.gather(scaled, f"{full}.gradient", members)

        results = _ops.scatter(tensors, full, reduction)
        return (results if len(results) > 1 else results[0]), backward

    results = scatter(*tensors)
    return results if len(tensors) > 1 else [results]


@unconverted
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Returns, or in a graph is done, once all ranks have called it.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.barrier()
    """
    return _ops.meet(process_set, _ops.label("barrier", None, None, process_set, False))


@unconverted
def join() -> tf.Tensor:
    """Says that this rank has no more data; the last rank to say so.

    >>> import sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> int(hvd.join()) in range(hvd.size())
    True
    """
    return _ops.join(global_process_set)
