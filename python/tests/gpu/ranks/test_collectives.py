"""All collectives of ``hvd`` with all types, on tensors of a GPU."""

import pytest
import torch
from gpu import DEVICE, FLOATS, INTEGERS, TYPES, example, examples

import sirtaki.torch as hvd

SHAPES = [(), (0,), (1,), (3, 4), (33, 1025), (1_000_003,)]
REDUCTIONS = {
    "sum": (hvd.Sum, lambda stack: stack.sum(0)),
    "average": (hvd.Average, lambda stack: stack.mean(0)),
    "min": (hvd.Min, lambda stack: stack.amin(0)),
    "max": (hvd.Max, lambda stack: stack.amax(0)),
    "product": (hvd.Product, lambda stack: stack.prod(0)),
}


def reduced(shape, dtype, op):
    """What the ranks' examples become, computed in double precision."""
    result = REDUCTIONS[op][1](examples(shape, torch.float64))
    return result.to(dtype) if dtype.is_floating_point else result.trunc().to(dtype)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_allreduce(dtype, op):
    if op == "product" and dtype in (torch.int8, torch.uint8) and hvd.size() > 2:
        pytest.skip("too large for the type")
    for shape in SHAPES:
        mine, wanted = example(hvd.rank(), shape, dtype), reduced(shape, dtype, op)
        got = hvd.allreduce(mine, op=REDUCTIONS[op][0])
        assert got.device == DEVICE and got.dtype == dtype
        torch.testing.assert_close(got, wanted)
        assert mine.equal(example(hvd.rank(), shape, dtype)), "the input has changed"
        place = mine.data_ptr()
        assert hvd.allreduce_(mine, op=REDUCTIONS[op][0]) is mine
        torch.testing.assert_close(mine, wanted)
        assert mine.data_ptr() == place


def test_allreduce_of_truth_values():
    for op, function in ((hvd.Min, "all"), (hvd.Max, "any")):
        got = hvd.allreduce(example(hvd.rank(), dtype=torch.bool), op=op)
        assert got.equal(getattr(examples(dtype=torch.bool), function)(0))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_scaling(dtype):
    mine = example(hvd.rank(), dtype=dtype)
    got = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    torch.testing.assert_close(got, reduced((33,), dtype, "sum"))
    got = hvd.allreduce(mine, op=hvd.Average, prescale_factor=4.0)
    wanted = 4.0 * examples(dtype=torch.float64).mean(0)
    torch.testing.assert_close(
        got, wanted.trunc().to(dtype) if dtype == torch.int32 else wanted.to(dtype)
    )


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_compression(compression, dtype):
    mine = example(hvd.rank(), (33, 1025), dtype)
    got = hvd.allreduce(mine, op=hvd.Sum, compression=getattr(hvd.Compression, compression))
    assert got.dtype == dtype
    torch.testing.assert_close(got, reduced(mine.shape, dtype, "sum"))


def test_many_in_flight_in_any_order():
    tensors = [example(hvd.rank(), shape) for shape in SHAPES * 5]
    numbers = list(range(len(tensors)))
    order = numbers if hvd.rank() % 2 == 0 else numbers[::-1]
    handles = {i: hvd.allreduce_async_(tensors[i], name=f"m{i}", op=hvd.Sum) for i in order}
    for number in numbers:
        wanted = reduced(tensors[number].shape, torch.float32, "sum")
        torch.testing.assert_close(hvd.synchronize(handles[number]), wanted)
        assert hvd.poll(handles[number])


def test_grouped_allreduce():
    def mine():
        return [example(hvd.rank(), shape, dtype) for shape, dtype in kinds]

    kinds = [(shape, dtype) for shape in SHAPES for dtype in (torch.float32, torch.bfloat16)]
    wanted = [reduced(shape, dtype, "average") for shape, dtype in kinds]
    for got in (
        hvd.grouped_allreduce(mine()),
        hvd.grouped_allreduce_(mine()),
        hvd.synchronize(hvd.grouped_allreduce_async(mine(), name="new")),
        hvd.synchronize(hvd.grouped_allreduce_async_(mine(), name="in place")),
    ):
        for one, other in zip(got, wanted):
            torch.testing.assert_close(one, other)


def test_strided_tensors():
    wide = example(hvd.rank(), (8, 6))
    mean = examples((8, 6)).mean(0)
    torch.testing.assert_close(hvd.allreduce(wide.t()), mean.t())
    view = wide[:, 1::2]
    assert hvd.allreduce_(view) is view
    torch.testing.assert_close(wide[:, 1::2], mean[:, 1::2])
    assert wide[:, ::2].equal(example(hvd.rank(), (8, 6))[:, ::2])
    images = torch.ones(2, 3, 4, 5, device=DEVICE).to(memory_format=torch.channels_last)
    got = hvd.allreduce(images * hvd.rank(), op=hvd.Sum)
    assert got.eq(sum(range(hvd.size()))).all()


@pytest.mark.parametrize("dtype", [*TYPES, torch.int16, torch.complex64], ids=str)
def test_allgather(dtype):
    for shape in [(3,), (2, 3), (0, 4), (), (40, 1025)]:
        # Every rank has another number of rows.
        parts = [example(rank, shape, dtype) for rank in range(hvd.size())]
        if shape:
            parts = [torch.cat([one] * (rank + 1)) for rank, one in enumerate(parts)]
        wanted = torch.cat([one.reshape(1) if one.dim() == 0 else one for one in parts])
        got = hvd.allgather(parts[hvd.rank()])
        assert got.equal(wanted) and got.dtype == dtype and got.device == DEVICE
    group = [example(hvd.rank(), (hvd.rank() + 1, width), dtype) for width in range(4)]
    for width, got in enumerate(hvd.grouped_allgather(group)):
        rows = [example(rank, (rank + 1, width), dtype) for rank in range(hvd.size())]
        assert got.equal(torch.cat(rows))


@pytest.mark.parametrize("dtype", [*TYPES, torch.int16, torch.complex64], ids=str)
def test_broadcast(dtype):
    for root in range(hvd.size()):
        for shape in SHAPES:
            mine, wanted = example(hvd.rank(), shape, dtype), example(root, shape, dtype)
            assert hvd.broadcast(mine, root).equal(wanted)
            assert mine.equal(example(hvd.rank(), shape, dtype)), "the input has changed"
            assert hvd.broadcast_(mine, root) is mine and mine.equal(wanted)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_alltoall(dtype):
    rank, size = hvd.rank(), hvd.size()

    def part(of, to):
        """What a rank sends another: one row more for each, and none to itself where it can."""
        return example(of + 2 * to, (0 if of == to else to + 1, 3), dtype)

    mine = torch.cat([part(rank, to) for to in range(size)])
    splits = [len(part(rank, to)) for to in range(size)]
    wanted = torch.cat([part(of, rank) for of in range(size)])
    got, received = hvd.alltoall(mine, splits)
    assert got.equal(wanted) and received.tolist() == [len(part(of, rank)) for of in range(size)]
    equal = hvd.alltoall(example(rank, (2 * size, 5), dtype))
    rows = [example(of, (2 * size, 5), dtype)[2 * rank : 2 * rank + 2] for of in range(size)]
    assert equal.equal(torch.cat(rows)) and equal.device == DEVICE


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_reducescatter(dtype):
    rank, size = hvd.rank(), hvd.size()
    for rows in (2 * size, 2 * size + 1, 1, 64 * size):
        share, more = divmod(rows, size)
        begin = rank * share + min(rank, more)
        end = begin + share + (rank < more)
        for name in ("sum", "average"):
            wanted = reduced((rows, 257), dtype, name)[begin:end]
            mine = example(rank, (rows, 257), dtype)
            got = hvd.reducescatter(mine, op=REDUCTIONS[name][0])
            torch.testing.assert_close(got, wanted)
            assert mine.equal(example(rank, (rows, 257), dtype)), "the input has changed"
    first, second = hvd.grouped_reducescatter([mine, mine], op=hvd.Average)
    torch.testing.assert_close(first, wanted)
    torch.testing.assert_close(second, wanted)


def test_adasum():
    same = hvd.allreduce(torch.tensor([1.0, 2.0], device=DEVICE), op=hvd.Adasum)
    torch.testing.assert_close(same, torch.tensor([1.0, 2.0], device=DEVICE))
    mine = torch.zeros(hvd.size(), device=DEVICE)
    mine[hvd.rank()] = 1.0
    got = hvd.allreduce(mine, op=hvd.Adasum)
    torch.testing.assert_close(got, torch.ones(hvd.size(), device=DEVICE))


def test_join():
    for rank in range(hvd.size()):
        # One rank after another runs out of data.
        if hvd.rank() >= rank:
            mine = torch.ones(3, device=DEVICE)
            got = hvd.allreduce(mine, op=hvd.Sum, name=f"round {rank}")
            assert got.tolist() == [hvd.size() - rank] * 3
    assert hvd.join() in range(hvd.size())


def test_sparse():
    index = torch.tensor([[0, hvd.rank() + 1]], device=DEVICE)
    values = torch.ones(2, 4, device=DEVICE)
    mine = torch.sparse_coo_tensor(index, values, (hvd.size() + 1, 4))
    got = hvd.sparse_allreduce_async(mine, name="sparse", op=hvd.Sum)().to_dense()
    assert got.device == DEVICE
    assert got[0].tolist() == [hvd.size()] * 4 and got[1:].tolist() == [[1.0] * 4] * hvd.size()


def test_gradients():
    mine = torch.ones(4, device=DEVICE, requires_grad=True)
    hvd.allreduce(mine * (hvd.rank() + 1), op=hvd.Sum).sum().backward()
    assert mine.grad.eq(hvd.size() * (hvd.rank() + 1)).all()
