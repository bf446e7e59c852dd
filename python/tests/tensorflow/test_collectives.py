"""Collectives, in all of TensorFlow's modes."""

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd

FLOATS = ["float16", "bfloat16", "float32", "float64"]
NUMBERS = [*FLOATS, "int8", "uint8", "int32", "int64"]
OTHERS = ["int16", "uint16", "uint32", "uint64", "complex64", "complex128"]


def ranks():
    return np.arange(hvd.size())


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_sums_of_all_types(mode, dtype):
    def total(value):
        return hvd.allreduce(tf.cast(value, dtype), op=hvd.Sum, name=f"sum.{dtype}")

    result = mode(total)(np.array([[0, hvd.rank()], [1, 2]]))
    expected = np.array([[0, ranks().sum()], [hvd.size(), 2 * hvd.size()]])
    expected = expected.astype(bool) if dtype == "bool" else expected
    assert result.dtype.name == dtype and (result.astype(expected.dtype) == expected).all()


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (hvd.Average, lambda values: values.mean()),
        (hvd.Min, min),
        (hvd.Max, max),
        (hvd.Product, lambda values: values.prod()),
    ],
)
def test_reductions(mode, op, expected):
    result = mode(lambda value: hvd.allreduce(value, op=op))(np.float64(hvd.rank() + 1))
    assert result == pytest.approx(expected(ranks() + 1.0))


def test_adasum_of_equal_tensors_is_that_tensor(mode):
    result = mode(lambda value: hvd.allreduce(value, op=hvd.Adasum))(np.float32([3, 4]))
    assert result == pytest.approx([3, 4])


def test_factors_have_the_precision_of_the_tensor(mode):
    def scaled(value):
        return hvd.allreduce(value, op=hvd.Sum, prescale_factor=0.1, postscale_factor=3.0)

    result = mode(scaled)(np.float64(1.0))
    assert result == pytest.approx(0.3 * hvd.size(), rel=1e-15)


def test_groups_of_several_types(mode):
    def group(value):
        tensors = [value, tf.cast(value, tf.int32), tf.reshape(value, [])]
        return hvd.grouped_allreduce(tensors, op=hvd.Sum)

    results = mode(group)(np.float32([hvd.rank()]))
    assert [float(result.sum()) for result in results] == [ranks().sum()] * 3
    assert [result.shape for result in results] == [(1,), (1,), ()]


@pytest.mark.parametrize("dtype", [*NUMBERS, *OTHERS, "bool"])
def test_gathering_different_numbers_of_rows(mode, dtype):
    rank = hvd.rank()

    def gather(value):
        return hvd.allgather(tf.cast(value, dtype), name=f"rows.{dtype}")

    result = mode(gather)(np.full([rank, 2], rank))
    expected = np.repeat(ranks(), ranks())
    assert result.dtype.name == dtype and result.shape == (len(expected), 2)
    assert (result[:, 0] == expected.astype(result.dtype)).all()


def test_gathering_numbers_and_groups(mode):
    def gather(value):
        return [hvd.allgather(value), *hvd.grouped_allgather([value, tf.fill([2, 1], value)])]

    single, first, second = mode(gather)(np.float32(hvd.rank()))
    assert single.tolist() == first.tolist() == ranks().tolist()
    assert second[:, 0].tolist() == np.repeat(ranks(), 2).tolist()


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex64"])
def test_broadcast(mode, dtype):
    root = hvd.size() - 1
    result = mode(lambda value: hvd.broadcast(tf.cast(value, dtype), root))(np.array([hvd.rank()]))
    assert result.dtype.name == dtype and result == np.array([root]).astype(result.dtype)


def test_exchange_with_splits(mode):
    rank, size = hvd.rank(), hvd.size()
    splits = (ranks() + rank) % 3

    def exchange(value, splits):
        return hvd.alltoall(value, splits=splits)

    rows, counts = mode(exchange)(np.repeat(ranks(), splits) * 10 + rank, splits.astype(np.int32))
    assert counts.tolist() == [(rank + sender) % 3 for sender in range(size)]
    assert rows.tolist() == [
        rank * 10 + sender for sender, n in enumerate(counts) for _ in range(n)
    ]


def test_exchange_without_splits(mode):
    result = mode(hvd.alltoall)(np.repeat(ranks(), 2).astype(np.float32))
    assert result.tolist() == [hvd.rank()] * 2 * hvd.size()


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_scattering(mode, op):
    size = hvd.size()
    rows = 2 * size + 1
    result = mode(lambda value: hvd.reducescatter(value, op=op))(
        np.arange(rows * 2.0).reshape(rows, 2)
    )
    begin = 2 * hvd.rank() + min(hvd.rank(), 1)
    expected = np.arange(rows * 2.0).reshape(rows, 2)[
        begin : begin + (3 if hvd.rank() == 0 else 2)
    ]
    assert (result == expected * (size if op == hvd.Sum else 1)).all()


def test_groups_are_scattered(mode):
    def scatter(value):
        return hvd.grouped_reducescatter([value, 2 * value], op=hvd.Sum)

    first, second = mode(scatter)(np.ones([hvd.size(), 3], np.float32))
    assert first.tolist() == [[hvd.size()] * 3] and second.tolist() == [[2 * hvd.size()] * 3]


def test_no_elements(mode):
    result = mode(hvd.allreduce)(np.zeros([0, 3], np.float32))
    assert result.shape == (0, 3)


def test_shapes_are_known_before_a_graph_runs():
    @tf.function
    def shapes(value):
        results = [hvd.allreduce(value), hvd.allgather(value), hvd.broadcast(value, 0)]
        results += [hvd.reducescatter(value), hvd.alltoall(value)]
        known.extend(result.shape.as_list() for result in results)
        return results

    known = []
    shapes.get_concrete_function(tf.TensorSpec([4, 3]))
    assert known == [[4, 3], [None, 3], [4, 3], [None, 3], [None, 3]]


@pytest.mark.skipif(
    tf.__version__.startswith("2.12."), reason="its sessions wait in their threads"
)
def test_many_at_once_in_a_session():
    """More of them than a session has threads, in whichever order it runs them."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.fill([17], float(hvd.rank()))
        results = [hvd.allreduce(value + number, op=hvd.Sum) for number in range(40)]
        gathered = [hvd.allgather(value) for _ in range(20)]
        for _ in range(3):
            sums, rows = session.run([results, gathered])
    total = ranks().sum()
    assert all((sums[number] == total + number * hvd.size()).all() for number in range(40))
    assert all(row.tolist() == np.repeat(ranks(), 17).tolist() for row in rows)


def test_constants_are_not_computed_in_advance():
    @tf.function
    def add():
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum) + float(count())

    def count():
        counter.assign_add(1)
        return 0

    counter = tf.Variable(0)
    for _ in range(3):
        assert add().numpy().tolist() == [hvd.size(), 2 * hvd.size()]
    assert counter.numpy() == 3


def test_unused_results_are_still_computed(several):
    """The rank that ignores its result must take part; otherwise this never ends."""

    @tf.function
    def unused(value):
        result = hvd.allreduce(value, name="unused", op=hvd.Sum)
        return value if hvd.rank() == 0 else result

    assert unused(tf.constant(1.0)).numpy() == (1 if hvd.rank() == 0 else hvd.size())


def test_the_input_is_left_alone():
    mine = tf.constant([float(hvd.rank())])
    variable = tf.Variable(mine)
    hvd.allreduce(mine, op=hvd.Sum)
    hvd.allreduce(variable, op=hvd.Sum)
    tf.function(lambda: hvd.allreduce(variable, op=hvd.Sum))()
    assert mine.numpy() == variable.numpy() == [hvd.rank()]


def test_barrier_and_join(mode):
    def meet(_):
        met = hvd.barrier()
        with tf.control_dependencies([] if met is None else [met]):
            return hvd.join()

    assert mode(meet)(0) in range(hvd.size())


def test_places(mode):
    def places(_):
        return [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()]

    expected = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]
    assert mode(places)(0) == expected


def test_process_sets(mode, several):
    even = hvd.add_process_set(range(0, hvd.size(), 2))
    odd = hvd.add_process_set(range(1, hvd.size(), 2))
    mine = odd if hvd.rank() % 2 else even

    def total(value):
        included = [hvd.process_set_included_op(one.process_set_id) for one in (even, odd)]
        return hvd.allreduce(value, op=hvd.Sum, process_set=mine), included

    result, included = mode(total)(np.float32(hvd.rank()))
    assert result == sum(mine.ranks)
    assert included == [int(mine is even), int(mine is odd)]
    hvd.remove_process_set(odd)
    hvd.remove_process_set(even)
