"""``torch.distributed`` over Sirtaki: every collective, with all types and shapes, and groups."""

import gc
import time
import weakref

import pytest
import torch
import torch.distributed as dist

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
]
SHAPES = [(), (0,), (3, 2)]

pytestmark = pytest.mark.usefixtures("process_group")


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def of_rank(number, shape=(5,), dtype=torch.float32):
    """A tensor that every rank can compute for each."""
    elements = torch.arange(1, 1 + torch.Size(shape).numel()) * (number + 1)
    return (elements % 7).reshape(shape).to(dtype)


def of_all(shape=(5,), dtype=torch.float32):
    return torch.stack([of_rank(number, shape, dtype) for number in range(size())])


@pytest.mark.parametrize("dtype", [*TYPES, torch.complex64], ids=str)
def test_everything_moves(dtype):
    for shape in SHAPES:
        expected, mine = of_all(shape, dtype), of_rank(rank(), shape, dtype)
        for root in {0, size() - 1}:
            tensor = mine.clone()
            dist.broadcast(tensor, root)
            assert tensor.equal(expected[root])
            got = [torch.empty_like(mine) for _ in range(size())] if rank() == root else None
            dist.gather(mine, got, root)
            assert got is None or torch.stack(got).equal(expected)
            tensor = torch.empty_like(mine)
            dist.scatter(tensor, list(expected) if rank() == root else None, root)
            assert tensor.equal(mine)
        got = [torch.empty_like(mine) for _ in range(size())]
        dist.all_gather(got, mine)
        assert torch.stack(got).equal(expected)
        whole = torch.empty_like(expected)
        dist.all_gather_into_tensor(whole, mine)
        assert whole.equal(expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_everything_is_reduced(dtype):
    if dtype == torch.bool:
        operations = {"MIN": "all", "MAX": "any"}
    else:
        operations = {"SUM": "sum", "MIN": "amin", "MAX": "amax", "PRODUCT": "prod"}
    for shape in SHAPES:
        for name, function in operations.items():
            whole = of_all(shape, dtype)
            wide = whole.float() if dtype.is_floating_point else whole
            expected = getattr(wide, function)(0).to(dtype)
            op, tensor = getattr(dist.ReduceOp, name), of_rank(rank(), shape, dtype)
            dist.all_reduce(tensor, op)
            torch.testing.assert_close(tensor, expected)
            tensor = of_rank(rank(), shape, dtype)
            dist.reduce(tensor, size() - 1, op)
            last = rank() == size() - 1
            torch.testing.assert_close(tensor, expected if last else whole[rank()])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str
)
def test_shares_of_reductions(dtype):
    whole = torch.stack(
        [of_rank(number + size(), (size(), 3, 2), dtype) for number in range(size())]
    )
    expected = whole.sum(0, dtype=dtype)[rank()]
    given = whole[rank()].clone()
    output = torch.empty(3, 2, dtype=dtype)
    dist.reduce_scatter_tensor(output, given)
    torch.testing.assert_close(output, expected)
    assert given.equal(whole[rank()])
    dist.reduce_scatter(output.zero_(), list(given))
    torch.testing.assert_close(output, expected)
    uneven = [torch.full((number + 1,), rank() + 1, dtype=dtype) for number in range(size())]
    output = torch.empty(rank() + 1, dtype=dtype)
    dist.reduce_scatter(output, uneven)
    assert output.eq(size() * (size() + 1) // 2).all()


def test_reductions_with_factors_and_bits():
    tensor = torch.full((3,), rank() + 1.0)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.eq((size() + 1) / 2).all()
    if not torch.__version__.startswith("1."):
        tensor = torch.full((3,), rank() + 1.0)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        assert tensor.eq(size() * (size() + 1) / 4).all()
    whole = of_all((4,), torch.int32) + 3
    for name in ("and", "or", "xor"):
        tensor, expected = whole[rank()].clone(), whole[0]
        for other in whole[1:]:
            expected = getattr(torch, f"bitwise_{name}")(expected, other)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, f"B{name.upper()}"))
        assert tensor.equal(expected)


def test_complex_numbers_are_added():
    tensor = torch.full((2, 2), complex(rank(), 1))
    dist.all_reduce(tensor)
    assert tensor.eq(complex(size() * (size() - 1) / 2, size())).all()
    output = torch.empty(2, dtype=torch.complex64)
    dist.reduce_scatter_tensor(output, torch.full((2 * size(),), complex(1, rank())))
    assert output.eq(complex(size(), size() * (size() - 1) / 2)).all()
    with pytest.raises((RuntimeError, ValueError), match="complex"):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)


def test_tensors_that_are_not_contiguous():
    whole = torch.zeros(4, 6)
    tensor = whole[:, ::2]
    tensor += rank()
    dist.all_reduce(tensor)
    assert tensor.eq(size() * (size() - 1) / 2).all() and whole[:, 1::2].eq(0).all()
    whole = torch.full((4, 6), float(rank()))
    dist.broadcast(whole.t()[1:3], size() - 1)
    assert whole[:, 1:3].eq(size() - 1).all() and whole[:, 0].eq(rank()).all()
    columns = torch.zeros(3, size())
    dist.all_gather(list(columns.unbind(1)), torch.full((3,), float(rank())))
    assert columns.equal(torch.arange(float(size())).expand(3, -1))


def test_rows_for_everybody():
    given = torch.arange(size() * 2.0).reshape(size(), 2) + 100 * rank()
    output = torch.empty_like(given)
    dist.all_to_all_single(output, given)
    expected = [torch.arange(2.0) + 2 * rank() + 100 * other for other in range(size())]
    assert output.equal(torch.stack(expected))
    counts = [number + 1 for number in range(size())]
    given = torch.full((sum(counts), 2), float(rank()))
    output = torch.empty(size() * (rank() + 1), 2)
    dist.all_to_all_single(output, given, [rank() + 1] * size(), counts)
    assert output[:, 0].equal(torch.arange(float(size())).repeat_interleave(rank() + 1))
    outputs = [torch.empty(rank() + 1) for _ in range(size())]
    dist.all_to_all(outputs, [torch.full((count,), float(rank())) for count in counts])
    assert all(output.eq(other).all() for other, output in enumerate(outputs))


def test_sparse_tensors_are_added():
    places = torch.tensor([[0, rank() + 1], [1, 0]])
    tensor = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0]), (size() + 1, 2))
    dist.all_reduce(tensor)
    expected = torch.zeros(size() + 1, 2)
    expected[0, 1], expected[1:, 0] = size(), 2
    assert tensor.to_dense().equal(expected)


def test_many_at_once_and_futures():
    tensors = [torch.full((10,), float(number + rank())) for number in range(30)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    other = dist.all_reduce(torch.ones(3), async_op=True)
    future = other.get_future().then(lambda done: done.value()[0] * 2)
    for work in works:
        assert work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None
    assert other.get_future().wait()[0].eq(size()).all() and future.wait().eq(2 * size()).all()
    assert other.result()[0].eq(size()).all()
    for number, tensor in enumerate(tensors):
        assert tensor.eq(number * size() + size() * (size() - 1) / 2).all()


def test_objects_and_barrier():
    everything = [None] * size()
    dist.all_gather_object(everything, {"rank": rank(), "text": "x" * rank()})
    assert [one["rank"] for one in everything] == list(range(size()))
    objects = ["first", {"rank": rank()}]
    dist.broadcast_object_list(objects, src=size() - 1)
    assert objects[1] == {"rank": size() - 1}
    gathered = [None] * size() if rank() == 0 else None
    dist.gather_object(rank(), gathered)
    assert gathered is None or gathered == list(range(size()))
    output = [None]
    dist.scatter_object_list(output, list(range(10, 10 + size())))
    assert output == [10 + rank()]
    dist.barrier()


def test_results_are_not_kept():
    whole = torch.empty(size() * 3)
    dist.all_gather_into_tensor(whole, torch.ones(3))
    future = dist.all_reduce(whole, async_op=True).get_future()
    future.wait()
    kept = weakref.ref(whole)
    del whole, future
    deadline = time.monotonic() + 30
    while kept() is not None:
        # The thread for futures may not have let go yet.
        assert time.monotonic() < deadline, gc.get_referrers(kept())
        time.sleep(0.01)


def test_messages_round_the_ring(several):
    left, right = (rank() - 1) % size(), (rank() + 1) % size()
    sends = [dist.isend(torch.full((4,), rank() + 0.5 * tag), right, tag=tag) for tag in (0, 1)]
    tensors = [torch.empty(4), torch.empty(4)]
    for tag in (1, 0):
        dist.recv(tensors[tag], left, tag=tag)
        assert tensors[tag].eq(left + 0.5 * tag).all()
    for send in sends:
        send.wait()
    sends = [dist.isend(torch.tensor([number]), right) for number in range(20)]
    for number in range(20):
        got = torch.tensor([-1])
        dist.recv(got, left)
        assert got.item() == number
    for send in sends:
        send.wait()
    mine, got = torch.tensor([rank()]), torch.tensor([-1])
    messages = [dist.P2POp(dist.isend, mine, left), dist.P2POp(dist.irecv, got, right)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    assert got.item() == right
    send = dist.isend(torch.tensor([rank()]), right, tag=7)
    assert dist.recv(got, tag=7) == left == got.item()
    send.wait()


def test_some_of_the_ranks(several):
    groups = {}
    for members in ([0], [0, size() - 1], list(range(1, size())), list(reversed(range(size())))):
        groups[tuple(members)] = dist.new_group(members)
    for members, group in groups.items():
        if rank() not in members:
            continue
        assert dist.get_rank(group) == sorted(members).index(rank())
        tensor = torch.full((3,), rank() + 1.0)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(sum(members) + len(members)).all()
        tensor = torch.full((2,), float(rank()))
        dist.broadcast(tensor, members[0], group=group)
        assert tensor.eq(members[0]).all()
    pair = groups[0, size() - 1]
    if rank() in (0, size() - 1):
        dist.destroy_process_group(pair)
    again = dist.new_group([0, size() - 1])
    if rank() in (0, size() - 1):
        everybody = [None, None]
        dist.all_gather_object(everybody, rank(), group=again)
        assert everybody == [0, size() - 1]


def test_requests_that_cannot_be_right():
    with pytest.raises(ValueError, match="one share per rank"):
        dist.all_gather_into_tensor(torch.empty(size() + 1), torch.empty(1))
    with pytest.raises(ValueError, match=r"BAND .*float32"):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="SUM of torch"):
        dist.all_reduce(torch.ones(2, dtype=torch.int16))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.eq(size()).all()


def test_ranks_that_want_different_things(several):
    import sirtaki

    dtype = torch.float32 if rank() == 0 else torch.float64
    with pytest.raises(sirtaki.Error, match="f64"):
        dist.all_reduce(torch.ones(9, dtype=dtype))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.eq(size()).all()


def test_messages_whose_sizes_differ(several):
    import sirtaki

    if rank() > 1:
        return
    for _ in range(2):
        with pytest.raises(sirtaki.Error, match=r"different shapes.*\[4\].*\[5\]"):
            if rank() == 0:
                dist.send(torch.ones(4), 1, tag=3)
            else:
                dist.recv(torch.ones(5), 0, tag=3)
        got = torch.zeros(2)
        dist.send(torch.ones(2), 1, tag=3) if rank() == 0 else dist.recv(got, 0, tag=3)
        assert rank() == 0 or got.eq(1).all()


def test_as_many_in_flight_as_a_program_likes(several):
    """A rank that has many collectives in flight can still do what the others wait for."""
    pair = dist.new_group([0, 1])
    if rank() > 1:
        tensors = [torch.ones(4) for _ in range(100)]
    else:
        token = torch.ones(1)
        if rank() == 1:
            dist.all_reduce(token, group=pair)
        tensors = [torch.ones(4) for _ in range(100)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    if rank() == 0:
        # Only now does rank 1 begin.
        dist.all_reduce(token, group=pair)
    for work in works:
        work.wait()
    assert all(tensor.eq(size()).all() for tensor in tensors)
