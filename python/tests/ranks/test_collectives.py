"""All collectives with all element types and shapes, in every form."""

import pytest
import torch

import sirtaki.torch as hvd

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
OTHERS = [torch.bool, torch.int16, torch.complex64]
SHAPES = [(), (0,), (1,), (17,), (5, 0, 3), (3, 4), (2, 3, 4), (33, 1025)]


def ranks():
    return range(hvd.size())


def example(rank, shape, dtype):
    """Small whole numbers, so that sums are exact in every type."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    values = (torch.arange(count) % 7 + rank).reshape(shape)
    return values.to(dtype)


def reduced(shape, dtype, how):
    stack = torch.stack([example(rank, shape, torch.float64) for rank in ranks()])
    return how(stack).to(dtype)


REDUCTIONS = {
    "average": (hvd.Average, lambda stack: stack.mean(0)),
    "sum": (hvd.Sum, lambda stack: stack.sum(0)),
    "min": (hvd.Min, lambda stack: stack.min(0).values),
    "max": (hvd.Max, lambda stack: stack.max(0).values),
    "product": (hvd.Product, lambda stack: stack.prod(0)),
}


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_allreduce(dtype, op):
    number, how = REDUCTIONS[op]
    for shape in SHAPES:
        mine, wanted = example(hvd.rank(), shape, dtype), reduced(shape, dtype, how)
        if op == "average" and not dtype.is_floating_point:
            wanted = reduced(shape, dtype, lambda stack: torch.trunc(stack.mean(0)))
        if op == "product" and dtype in (torch.float16, torch.bfloat16, torch.uint8, torch.int8):
            continue  # Too large for the type.
        got = hvd.allreduce(mine, op=number)
        torch.testing.assert_close(got, wanted)
        assert got.shape == mine.shape and got.dtype == dtype
        assert torch.equal(mine, example(hvd.rank(), shape, dtype)), "the input has changed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_allreduce_in_place(dtype):
    for shape in SHAPES:
        mine = example(hvd.rank(), shape, dtype)
        place = mine.data_ptr()
        assert hvd.allreduce_(mine, op=hvd.Sum, name="in place") is mine
        torch.testing.assert_close(mine, reduced(shape, dtype, REDUCTIONS["sum"][1]))
        assert mine.data_ptr() == place


def test_allreduce_async():
    tensors = [example(hvd.rank(), shape, torch.float32) for shape in SHAPES * 3]
    handles = [hvd.allreduce_async(t, name=f"a{i}", op=hvd.Sum) for i, t in enumerate(tensors)]
    places = [hvd.allreduce_async_(t, name=f"b{i}", op=hvd.Sum) for i, t in enumerate(tensors)]
    # Whatever the order in which one asks.
    for i in reversed(range(len(tensors))):
        wanted = reduced(tensors[i].shape, torch.float32, REDUCTIONS["sum"][1])
        torch.testing.assert_close(hvd.synchronize(places[i]), wanted)
        torch.testing.assert_close(hvd.synchronize(handles[i]), wanted)
        assert hvd.poll(handles[i]) and hvd.synchronize(handles[i]) is None


def test_ranks_may_hand_in_in_different_orders():
    names = [str(i) for i in range(20)]
    order = names if hvd.rank() % 2 == 0 else names[::-1]
    handles = {n: hvd.allreduce_async(torch.full((3,), float(n)), name=n) for n in order}
    for name in names:
        assert hvd.synchronize(handles[name]).tolist() == [float(name)] * 3


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_scaling(dtype):
    mine = example(hvd.rank(), (17,), dtype)
    got = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    torch.testing.assert_close(got, reduced((17,), dtype, REDUCTIONS["sum"][1]))


def test_grouped_allreduce():
    tensors = [example(hvd.rank(), shape, torch.float32) for shape in SHAPES]
    wanted = [reduced(shape, torch.float32, REDUCTIONS["average"][1]) for shape in SHAPES]
    for got in (
        hvd.grouped_allreduce(tensors),
        hvd.synchronize(hvd.grouped_allreduce_async(tensors, name="group")),
        hvd.grouped_allreduce_(tensors),
    ):
        assert isinstance(got, list)
        for one, other in zip(got, wanted):
            torch.testing.assert_close(one, other)
    # These were changed where they are.
    torch.testing.assert_close(tensors[-1], wanted[-1])
    hvd.synchronize(hvd.grouped_allreduce_async_(tensors))
    torch.testing.assert_close(tensors[-1], wanted[-1])


def test_average_is_the_old_name():
    with pytest.warns(DeprecationWarning):
        got = hvd.allreduce(torch.ones(2), average=False)
    assert got.tolist() == [hvd.size()] * 2
    with pytest.raises(ValueError, match="only one"):
        hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
def test_compression(compression, dtype):
    mine = example(hvd.rank(), (33, 1025), dtype)
    got = hvd.allreduce(mine, op=hvd.Sum, compression=getattr(hvd.Compression, compression))
    assert got.dtype == dtype
    torch.testing.assert_close(got, reduced(mine.shape, dtype, REDUCTIONS["sum"][1]))


def test_adasum():
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("needs a power of two of ranks")
    same = hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Adasum)
    torch.testing.assert_close(same, torch.tensor([1.0, 2.0]))
    mine = torch.zeros(hvd.size())
    mine[hvd.rank()] = 1.0
    torch.testing.assert_close(hvd.allreduce(mine, op=hvd.Adasum), torch.ones(hvd.size()))


def test_strided_inputs():
    wide = torch.arange(24.0).reshape(4, 6) + hvd.rank()
    mean = torch.arange(24.0).reshape(4, 6) + (hvd.size() - 1) / 2
    torch.testing.assert_close(hvd.allreduce(wide.t()), mean.t())
    torch.testing.assert_close(hvd.allreduce(wide[:, ::2]), mean[:, ::2])
    view = wide[:, 1::2]
    assert hvd.allreduce_(view) is view
    torch.testing.assert_close(wide[:, 1::2], mean[:, 1::2])
    torch.testing.assert_close(wide[:, ::2], mean[:, ::2] - (hvd.size() - 1) / 2 + hvd.rank())
    assert hvd.allgather(wide.t()).shape == (6 * hvd.size(), 4)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + OTHERS, ids=str)
def test_allgather(dtype):
    for shape in [(3,), (2, 3), (0, 4), (), (40, 1025)]:
        # Every rank has another number of rows.
        mine = [example(rank, shape, dtype) for rank in ranks()]
        if shape:
            mine = [torch.cat([one] * (rank + 1)) for rank, one in enumerate(mine)]
        wanted = torch.cat([one.reshape(1) if one.dim() == 0 else one for one in mine])
        got = hvd.allgather(mine[hvd.rank()])
        assert torch.equal(got, wanted) and got.dtype == dtype
        assert torch.equal(hvd.synchronize(hvd.allgather_async(mine[hvd.rank()])), wanted)


def test_grouped_allgather():
    mine = [torch.full((hvd.rank() + 1, i), hvd.rank()) for i in range(4)]
    wanted = [torch.cat([torch.full((rank + 1, i), rank) for rank in ranks()]) for i in range(4)]
    for got in (hvd.grouped_allgather(mine), hvd.synchronize(hvd.grouped_allgather_async(mine))):
        assert all(torch.equal(one, other) for one, other in zip(got, wanted))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + OTHERS, ids=str)
def test_broadcast(dtype):
    for root in ranks():
        for shape in SHAPES:
            mine, wanted = example(hvd.rank(), shape, dtype), example(root, shape, dtype)
            assert torch.equal(hvd.broadcast(mine, root), wanted)
            assert torch.equal(hvd.synchronize(hvd.broadcast_async(mine, root)), wanted)
            assert torch.equal(mine, example(hvd.rank(), shape, dtype)), "the input has changed"
            assert hvd.synchronize(hvd.broadcast_async_(mine, root)) is mine
            assert torch.equal(mine, wanted)
            assert hvd.broadcast_(example(hvd.rank(), shape, dtype), root).shape == mine.shape


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + OTHERS, ids=str)
def test_alltoall(dtype):
    rank, size = hvd.rank(), hvd.size()
    # Rank r sends i + 1 rows of the number r to rank i.
    mine = torch.full((sum(range(size + 1)), 3), rank).to(dtype)
    splits = torch.arange(1, size + 1, dtype=torch.int32)
    wanted = torch.cat([torch.full((rank + 1, 3), other) for other in ranks()]).to(dtype)
    for given in (splits, splits.tolist(), splits.long()):
        got, received = hvd.alltoall(mine, given)
        assert torch.equal(got, wanted) and received.tolist() == [rank + 1] * size
    equal = hvd.alltoall(torch.arange(2 * size).to(dtype))
    assert torch.equal(equal, torch.tensor([2 * rank, 2 * rank + 1] * size).to(dtype))
    nothing, received = hvd.alltoall(mine[:0], [0] * size)
    assert nothing.shape == (0, 3) and received.tolist() == [0] * size


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_reducescatter(dtype):
    rank, size = hvd.rank(), hvd.size()
    for rows in (size * 2, size * 2 + 1, 1, 64 * size):
        shape = (rows, 257)
        begin = sum(rows // size + (r < rows % size) for r in range(rank))
        end = begin + rows // size + (rank < rows % size)
        whole = reduced(shape, dtype, REDUCTIONS["sum"][1])
        mine = example(rank, shape, dtype)
        torch.testing.assert_close(hvd.reducescatter(mine, op=hvd.Sum), whole[begin:end])
        assert torch.equal(mine, example(rank, shape, dtype)), "the input has changed"
        got = hvd.synchronize(hvd.reducescatter_async(mine, op=hvd.Sum))
        torch.testing.assert_close(got, whole[begin:end])
        first, second = hvd.grouped_reducescatter([mine, mine], op=hvd.Sum)
        torch.testing.assert_close(first, whole[begin:end])
        torch.testing.assert_close(second, first)


def test_barrier_and_queries():
    hvd.barrier()
    assert 0 <= hvd.local_rank() < hvd.local_size() <= hvd.size()
    assert hvd.cross_rank() == 0 and hvd.cross_size() == 1 and hvd.is_homogeneous()
    assert hvd.gloo_enabled() and hvd.gloo_built()
    assert hvd.nccl_built() == 0 or hvd.nccl_built() >= 21400
    assert not hvd.mpi_enabled() and hvd.mpi_built()
    hvd.init()
    assert hvd.is_initialized()


def test_join():
    for rank in ranks():
        # One rank after another runs out of data.
        if hvd.rank() >= rank:
            got = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"round {rank}")
            assert got.tolist() == [hvd.size() - rank] * 3
    assert hvd.join() in ranks()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_sparse():
    index = torch.tensor([[0, hvd.rank() + 1]])
    mine = torch.sparse_coo_tensor(index, torch.ones(2, 4), (hvd.size() + 1, 4))
    got = hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Sum)().to_dense()
    assert got[0].tolist() == [hvd.size()] * 4 and got[1:].tolist() == [[1.0] * 4] * hvd.size()
    mean = hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Average)().to_dense()
    torch.testing.assert_close(mean, got / hvd.size())


def test_many_tensors_and_large_ones():
    for _ in range(3):
        tensors = [torch.full((n,), float(hvd.rank())) for n in [10, 70_000, 400_000, 3] * 10]
        handles = [hvd.allreduce_async_(t, name=f"m{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            assert hvd.synchronize(handle).eq((hvd.size() - 1) / 2).all()
