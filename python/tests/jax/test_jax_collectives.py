"""Collectives of arrays: every kind, every element type, inside and outside of jit."""

import jax
import jax.numpy as jnp
import numpy
import pytest

import sirtaki.jax as hvd

DTYPES = ["float16", "bfloat16", "float32", "int8", "uint8", "int32", "bool"]
MOVED = [*DTYPES, "int16", "uint16", "uint32", "complex64", "float8_e4m3fn"]
WAYS = [lambda function: function, jax.jit]


@pytest.fixture(params=WAYS, ids=["outside", "jit"])
def way(request):
    return request.param


def ranks():
    return range(hvd.size())


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_every_type(way, dtype):
    array = jnp.asarray(numpy.arange(6).reshape(2, 3) + hvd.rank(), dtype)
    total = way(lambda x: hvd.all_reduce(x, op=hvd.Sum))(array)
    parts = [numpy.asarray(numpy.arange(6).reshape(2, 3) + rank, dtype) for rank in ranks()]
    assert total.dtype == array.dtype
    expected = numpy.any(parts, 0) if dtype == "bool" else sum(parts)
    numpy.testing.assert_array_equal(numpy.asarray(total), expected)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (hvd.Average, numpy.mean),
        (hvd.Sum, numpy.sum),
        (hvd.Min, numpy.min),
        (hvd.Max, numpy.max),
        (hvd.Product, numpy.prod),
    ],
)
def test_every_reduction(way, op, expected):
    values = [numpy.float32([1 + rank, 4 - rank]) for rank in ranks()]
    result = way(lambda x: hvd.all_reduce(x, op=op))(jnp.asarray(values[hvd.rank()]))
    numpy.testing.assert_allclose(result, expected(values, axis=0), rtol=1e-6)


def test_adasum_of_equal_vectors_is_that_vector(way):
    result = way(lambda x: hvd.all_reduce(x, op=hvd.Adasum))(jnp.array([3.0, 4.0]))
    numpy.testing.assert_allclose(result, [3.0, 4.0], rtol=1e-6)


def test_factors(way):
    function = way(
        lambda x: hvd.all_reduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    )
    expected = 3.0 * sum(0.5 * rank for rank in ranks())
    assert function(jnp.float32(hvd.rank())).item() == pytest.approx(expected)


def test_numbers_and_lists_are_arrays(way):
    assert hvd.all_reduce(2.0).item() == 2.0
    assert hvd.all_reduce([1, 2], op=hvd.Max).tolist() == [1, 2]
    assert way(hvd.all_reduce)(jnp.zeros((0, 3))).shape == (0, 3)


def test_the_argument_stays_as_it_is(way):
    array = jnp.arange(4.0) + hvd.rank()
    before = numpy.array(array)
    way(lambda x: (hvd.all_reduce(x), hvd.reduce_scatter(x), hvd.broadcast(x)))(array)
    numpy.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("dtype", MOVED)
def test_gathers_of_every_type(way, dtype):
    array = jnp.asarray(numpy.full((2, 3), hvd.rank() + 1), dtype)
    gathered = way(hvd.all_gather)(array)
    assert gathered.dtype == array.dtype and gathered.shape == (2 * hvd.size(), 3)
    expected = numpy.repeat(numpy.asarray(numpy.arange(hvd.size()) + 1, dtype), 2)
    for column in range(3):
        numpy.testing.assert_array_equal(numpy.asarray(gathered[:, column]), expected)


def test_gathers_of_different_sizes():
    gathered = hvd.all_gather(jnp.full((hvd.rank(), 2), hvd.rank()))
    assert gathered[:, 0].tolist() == [rank for rank in ranks() for _ in range(rank)]
    assert way_of_numbers() == list(ranks())


def way_of_numbers():
    return hvd.all_gather(jnp.int32(hvd.rank())).tolist()


@pytest.mark.parametrize("dtype", MOVED)
def test_broadcasts_of_every_type(way, dtype):
    for root in ranks():
        array = jnp.asarray(numpy.full(5, hvd.rank() + 1), dtype)
        result = way(lambda x, root=root: hvd.broadcast(x, root))(array)
        numpy.testing.assert_array_equal(
            numpy.asarray(result), numpy.asarray(numpy.full(5, root + 1), dtype)
        )


@pytest.mark.parametrize("rows", [0, 1, 3, 4])
def test_shares_of_rows(way, rows):
    """The first ranks have one row more if they cannot be divided equally."""
    everything = numpy.arange(rows * hvd.size() + 1, dtype=numpy.float32)
    function = way(lambda x: hvd.reduce_scatter(x, op=hvd.Sum))
    share = function(jnp.asarray(everything * (hvd.rank() + 1)))
    expected = numpy.array_split(everything * sum(rank + 1 for rank in ranks()), hvd.size())
    numpy.testing.assert_allclose(share, expected[hvd.rank()])


def test_rows_are_exchanged(way):
    array = jnp.arange(hvd.size() * 2) + 100 * hvd.rank()
    received = way(hvd.all_to_all)(array)
    expected = [100 * rank + 2 * hvd.rank() + row for rank in ranks() for row in range(2)]
    assert received.tolist() == expected


def test_different_numbers_of_rows_are_exchanged():
    array = jnp.full((sum(ranks()) + 1, 2), hvd.rank())
    rows, counts = hvd.all_to_all(array, list(ranks()))
    assert counts == [hvd.rank()] * hvd.size()
    assert rows[:, 0].tolist() == [rank for rank in ranks() for _ in range(hvd.rank())]
    inside = jax.jit(
        lambda x: hvd.all_to_all(x, list(ranks()), received=[hvd.rank()] * hvd.size())
    )
    assert inside(array).tolist() == rows.tolist()


def test_process_sets(way, even):
    if not even.included():
        with pytest.raises(hvd.Error, match="is not in the process set"):
            hvd.all_reduce(jnp.ones(1), process_set=even)
        return
    total = way(lambda x: hvd.all_reduce(x, op=hvd.Sum, process_set=even))(jnp.float32(hvd.rank()))
    assert total.item() == sum(even.ranks)
    gathered = way(lambda x: hvd.all_gather(x, process_set=even))(jnp.array([hvd.rank()]))
    assert gathered.tolist() == list(even.ranks)
    last = even.ranks[-1]
    sent = way(lambda x: hvd.broadcast(x, last, process_set=even))(jnp.array([hvd.rank()]))
    assert sent.tolist() == [last]


def test_objects_and_barriers():
    hvd.barrier()
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=hvd.size() - 1) == {
        "rank": hvd.size() - 1
    }
    assert hvd.allgather_object(hvd.rank()) == list(ranks())


def test_horovods_names_are_the_same_functions():
    assert hvd.allreduce is hvd.all_reduce and hvd.allgather is hvd.all_gather
    assert hvd.alltoall is hvd.all_to_all and hvd.reducescatter is hvd.reduce_scatter
