"""NumPy's arrays, and everything that shares its memory with them."""

import array
import ctypes
import threading

import numpy as np
import pytest
import torch

import sirtaki.numpy as hvd

REDUCED = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]
MOVED = [*REDUCED, "bool", "int16", "uint16", "uint32", "uint64", "complex64", "complex128"]


def mine(dtype="float64", rows=3):
    return np.arange(rows * 2).reshape(rows, 2).astype(dtype) + np.array(hvd.rank(), dtype)


def everybody(dtype="float64", rows=3):
    return [
        np.arange(rows * 2).reshape(rows, 2).astype(dtype) + np.array(rank, dtype)
        for rank in range(hvd.size())
    ]


def equal(result, expected):
    assert isinstance(result, np.ndarray) and result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert result.flags.writeable


@pytest.mark.parametrize("dtype", REDUCED)
def test_reductions(dtype):
    given, parts = mine(dtype), everybody(dtype)
    for op, expected in [(hvd.Sum, sum(parts)), (hvd.Max, parts[-1]), (hvd.Min, parts[0])]:
        equal(hvd.allreduce(given, op=op), expected)
        equal(hvd.synchronize(hvd.allreduce_async(given, op=op)), expected)
    equal(given, mine(dtype))
    assert hvd.allreduce_(given, op=hvd.Sum) is given
    equal(given, sum(parts))
    again = mine(dtype)
    assert hvd.synchronize(hvd.allreduce_async_(again, op=hvd.Sum)) is again
    equal(again, sum(parts))


def test_averages_factors_and_booleans():
    parts = everybody()
    mean = sum(parts) / hvd.size()
    np.testing.assert_allclose(hvd.allreduce(mine()), mean)
    scaled = hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    np.testing.assert_allclose(scaled, 2 * sum(parts))
    assert hvd.allreduce(np.array([hvd.rank() == 0, False]), op=hvd.Max).tolist() == [True, False]
    small = hvd.allreduce(mine("float32"), op=hvd.Sum, compression=hvd.Compression.bf16)
    equal(small, sum(everybody("float32")))
    with pytest.warns(DeprecationWarning):
        np.testing.assert_allclose(hvd.allreduce(mine(), average=True), mean)


def test_a_type_that_numpy_itself_does_not_have():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    given = np.ones(4, bfloat16)
    equal(hvd.allreduce(given, op=hvd.Sum), np.full(4, hvd.size(), bfloat16))
    equal(hvd.allgather(given), np.ones(4 * hvd.size(), bfloat16))


def test_groups():
    given = [mine("float32"), mine("int64", 1)]
    sums = [sum(everybody("float32")), sum(everybody("int64", 1))]
    for result in (
        hvd.grouped_allreduce(given, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_allreduce_async(given, op=hvd.Sum)),
    ):
        for one, expected in zip(result, sums):
            equal(one, expected)
    for result in (
        hvd.grouped_allgather(given),
        hvd.synchronize(hvd.grouped_allgather_async(given)),
    ):
        equal(result[0], np.concatenate(everybody("float32")))
        equal(result[1], np.concatenate(everybody("int64", 1)))
    handle = hvd.grouped_allreduce_async_(given, op=hvd.Sum)
    assert hvd.synchronize(handle)[1] is given[1]
    hvd.grouped_allreduce_(given, op=hvd.Max)
    for one, expected in zip(given, sums):
        equal(one, expected)


@pytest.mark.parametrize("dtype", MOVED)
def test_moving(dtype):
    given, parts = mine(dtype), everybody(dtype)
    equal(hvd.allgather(given), np.concatenate(parts))
    last = hvd.size() - 1
    equal(hvd.broadcast(given, last), parts[last])
    equal(hvd.synchronize(hvd.broadcast_async(given, last)), parts[last])
    equal(
        hvd.synchronize(hvd.allgather_async(given, name=f"moving.{dtype}")), np.concatenate(parts)
    )
    assert hvd.broadcast_(given, last) is given
    equal(given, parts[last])


def test_times_and_records_are_moved_as_they_are():
    times = np.array(["2026-01-01", "2026-01-02"], "datetime64[D]") + hvd.rank()
    assert len(hvd.allgather(times)) == 2 * hvd.size()
    equal(hvd.broadcast(times, 0), times - hvd.rank())
    records = np.array([(1, 2.5)], [("number", "i4"), ("value", "f8")])
    equal(hvd.allgather(records), np.concatenate([records] * hvd.size()))


def test_rows_of_different_numbers_none_and_a_number():
    rows = hvd.allgather(np.full((hvd.rank(), 2), hvd.rank(), "float32"))
    assert rows[:, 0].tolist() == [r for r in range(hvd.size()) for _ in range(r)]
    assert hvd.allgather(np.empty((0, 3), "int16")).shape == (0, 3)
    assert hvd.allgather(hvd.rank()).tolist() == list(range(hvd.size()))
    assert hvd.allreduce(2.0, op=hvd.Sum).shape == ()
    assert float(hvd.allreduce(np.float32(2), op=hvd.Sum)) == 2 * hvd.size()
    assert hvd.allreduce(np.empty(0)).shape == (0,)


def test_sending_rows_to_others():
    size, rank = hvd.size(), hvd.rank()
    given = np.arange(size) * 10 + rank
    equal(hvd.alltoall(given), np.arange(size) + rank * 10)
    splits = np.array([to + 1 for to in range(size)], "int64")
    rows = np.repeat(np.arange(size), splits)
    received, counts = hvd.alltoall(rows, splits)
    assert received.tolist() == [rank] * (rank + 1) * size
    assert counts.dtype == splits.dtype and counts.tolist() == [rank + 1] * size
    _, counts = hvd.synchronize(hvd.alltoall_async(rows, splits.tolist()))
    assert counts.dtype == np.int32
    for wrong in ([1.5] * size, [-1] * size, [1] * (size + 1), [100] * size):
        with pytest.raises(ValueError, match="splits"):
            hvd.alltoall(rows, wrong)


def test_shares_of_a_sum():
    size, rank = hvd.size(), hvd.rank()
    given = np.arange(size * 2, dtype="float32").reshape(size, 2) + rank
    whole = sum(np.arange(size * 2).reshape(size, 2) + r for r in range(size)).astype("float32")
    equal(hvd.reducescatter(given, op=hvd.Sum), whole[rank : rank + 1])
    equal(hvd.synchronize(hvd.reducescatter_async(given, op=hvd.Sum)), whole[rank : rank + 1])
    twice = hvd.grouped_reducescatter([given, given], op=hvd.Sum)
    equal(twice[1], whole[rank : rank + 1])
    assert given[0, 0] == rank, "the argument is left alone"


def test_memory_that_is_not_contiguous_or_not_aligned():
    wide = np.zeros((4, 6))
    wide[:, ::2] = hvd.rank() + 1
    assert hvd.allreduce_(wide[:, ::2], op=hvd.Sum).sum() == 12 * sum(range(hvd.size() + 1))
    assert wide[:, 1::2].sum() == 0
    shifted = np.frombuffer(bytearray(25), "uint8")[1:].view("float64")
    shifted += 1
    assert hvd.allreduce_(shifted, op=hvd.Sum).tolist() == [hvd.size()] * 3
    fortran = np.asfortranarray(mine())
    equal(hvd.allgather(fortran), np.concatenate(everybody()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray([1, 2]),
        lambda: array.array("d", [1, 2]),
        lambda: (ctypes.c_float * 2)(1, 2),
        lambda: memoryview(array.array("i", [1, 2])),
    ],
    ids=["bytearray", "array", "ctypes", "memoryview"],
)
def test_whatever_has_the_buffer_protocol(make):
    given = make()
    assert hvd.allreduce(given, op=hvd.Sum).tolist() == [hvd.size(), 2 * hvd.size()]
    assert hvd.allreduce_(given, op=hvd.Sum) is given
    assert np.asarray(memoryview(given)).tolist() == [hvd.size(), 2 * hvd.size()]
    assert hvd.allgather(b"ab").tobytes() == b"ab" * hvd.size()


def test_whatever_has_dlpack():
    tensor = torch.ones(3, dtype=torch.int64)
    assert hvd.allreduce(tensor, op=hvd.Sum).tolist() == [hvd.size()] * 3
    assert tensor.tolist() == [1] * 3
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
        assert tensor.tolist() == [hvd.size()] * 3
    with pytest.raises(ValueError, match=r"(?s)NumPy cannot use this Tensor.*hint: detach"):
        hvd.allreduce(torch.ones(2, requires_grad=True))


def test_what_only_makes_arrays_is_sent_but_not_changed():
    class Maker:
        def __array__(self, *_, **__):
            return np.ones(2)

    assert hvd.allreduce(Maker(), op=hvd.Sum).tolist() == [hvd.size()] * 2
    with pytest.raises(ValueError, match="an array is needed, not Maker"):
        hvd.allreduce_(Maker())


def test_objects_barrier_and_parameters():
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=hvd.size() - 1) == {
        "rank": hvd.size() - 1
    }
    assert hvd.allgather_object("x" * hvd.rank()) == ["x" * r for r in range(hvd.size())]
    hvd.barrier()
    weights = {"b": np.full(2, hvd.rank()), "a": np.full(1, hvd.rank() + 0.5)}
    hvd.broadcast_parameters(weights, 0)
    assert weights["a"].tolist() == [0.5] and weights["b"].tolist() == [0, 0]
    numbers = [np.full(2, hvd.rank())]
    hvd.broadcast_parameters(numbers, 0)
    assert numbers[0].tolist() == [0, 0]


def test_process_sets(several):
    last = hvd.size() - 1
    ends = hvd.add_process_set([0, last]) if hvd.size() > 2 else hvd.global_process_set
    if ends.included():
        given = np.array([float(hvd.rank())])
        assert hvd.allreduce(given, op=hvd.Sum, process_set=ends).tolist() == [last]
        assert hvd.allgather(given, process_set=ends).tolist() == [0, last]
        assert hvd.broadcast(given, last, process_set=ends).tolist() == [last]
        assert hvd.broadcast_object(hvd.rank(), last, process_set=ends) == last
        from sirtaki._core.objects import allgather_object

        assert allgather_object(hvd.rank(), process_set=ends) == [0, last]
    if ends is not hvd.global_process_set:
        hvd.remove_process_set(ends)


def test_ranks_without_data_help_the_others():
    for _ in range(hvd.rank() + 1):
        hvd.allreduce(np.ones(2), op=hvd.Sum)
    assert hvd.join() in range(hvd.size())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([{}, []], dtype=object), "not numbers.*broadcast_object"),
        (np.array(["a", "b"]), "not numbers.*broadcast_object"),
        (np.array([b"a"]), "not numbers.*broadcast_object"),
        (np.ones(2, ">f4"), r"order of other processors.*newbyteorder"),
        ([1, 2], "an array is needed, not list.*asarray"),
        ("text", "an array is needed, not str"),
        (None, "an array is needed, not NoneType"),
    ],
    ids=["objects", "strings", "bytes", "big-endian", "list", "text", "none"],
)
def test_what_cannot_be_sent(value, text):
    for call in (hvd.allreduce, hvd.allgather, lambda one: hvd.broadcast(one, 0), hvd.alltoall):
        with pytest.raises(ValueError, match=f"(?s){text}"):
            call(value)


def test_what_cannot_be_changed_or_reduced():
    frozen = np.ones(2)
    frozen.flags.writeable = False
    for value in (frozen, b"ab"):
        for call in (hvd.allreduce_, hvd.allreduce_async_, lambda one: hvd.broadcast_(one, 0)):
            with pytest.raises(ValueError, match=r"(?s)read-only.*without the final underscore"):
                call(value)
    assert hvd.allreduce(frozen, op=hvd.Sum).tolist() == [hvd.size()] * 2
    for number in (1, 2.5, np.float32(1)):
        with pytest.raises(ValueError, match="is a number"):
            hvd.allreduce_(number)
    for dtype in ("int16", "uint64", "complex64"):
        with pytest.raises(ValueError, match=f"(?s)type {dtype} cannot be reduced.*float32"):
            hvd.allreduce(np.ones(2, dtype))
    with pytest.raises(hvd.Error, match="no rows"):
        hvd.reducescatter(np.array(1.0))
    with pytest.raises(NotImplementedError):
        hvd.reducescatter(np.ones(4), op=hvd.Max)
    with pytest.raises(ValueError, match="come in a dict"):
        hvd.broadcast_parameters(3, 0)


def test_memory_of_another_device_is_refused():
    class OnDevice:
        def __dlpack__(self, **_):
            raise AssertionError("nobody asks")

        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(ValueError, match=r"(?s)OnDevice that is not in the host's memory.*hint"):
        hvd.allreduce(OnDevice())


def test_a_name_in_use_and_ranks_that_disagree(several):
    handle = None
    if hvd.rank() > 0:
        # It cannot be done before the first rank submits it.
        handle = hvd.allreduce_async(np.ones(1), name="numpy.twice", op=hvd.Sum)
        with pytest.raises(ValueError, match="currently being processed"):
            hvd.allreduce_async(np.ones(1), name="numpy.twice", op=hvd.Sum)
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(np.ones(1), name="numpy.twice", op=hvd.Sum)
    assert hvd.synchronize(handle).tolist() == [hvd.size()]
    assert hvd.synchronize(handle) is None and hvd.poll(handle)
    with pytest.raises(hvd.Error, match=r"numpy\.differs"):
        hvd.allreduce(np.ones(1 + hvd.rank()), name="numpy.differs")
    with pytest.raises(hvd.Error, match=r"numpy\.types"):
        hvd.allreduce(np.ones(1, ["float32", "float64"][hvd.rank() % 2]), name="numpy.types")
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).tolist() == [hvd.size()]


def test_results_outlive_everything_that_made_them():
    kept = [hvd.allgather(np.full(1000, number)) for number in range(20)]
    views = [rows.reshape(hvd.size(), 1000)[:, :3] for rows in kept]
    del kept
    assert [int(view.sum()) for view in views] == [3 * hvd.size() * n for n in range(20)]


def test_many_in_flight_from_several_threads():
    def work(thread):
        handles = [
            hvd.allreduce_async(np.full(50, n), name=f"threads.{thread}.{n}", op=hvd.Sum)
            for n in range(20)
        ]
        results[thread] = [int(hvd.synchronize(handle)[0]) for handle in handles]

    results = {}
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {t: [n * hvd.size() for n in range(20)] for t in range(3)}


def test_state_of_arrays_survives_a_failure(several):
    state = hvd.elastic.ArrayState(
        weights=np.full(2, float(hvd.rank())), sampler=hvd.elastic.ElasticSampler(range(8)), step=0
    )
    tries = []

    @hvd.elastic.run
    def train(state):
        tries.append(state.step)
        assert state.weights.tolist() == [0.0 + state.step] * 2
        state.weights += 1
        state.sampler.record_batch(0, 1)
        state.step += 1
        if len(tries) == 1:
            state.commit()
            state.weights += 100
            hvd.allreduce(np.ones(1 + hvd.rank()), name="numpy.fails")
        return state.sampler.processed_num

    assert train(state) == 2 * hvd.size()
    assert tries == [0, 1] and state.weights.tolist() == [2.0, 2.0]
