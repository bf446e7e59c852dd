"""The process group ``"sirtaki"`` with tensors of a GPU: all collectives, types and streams."""

import pytest
import torch
import torch.distributed as dist
from gpu import DEVICE, FLOATS, INTEGERS, LARGE, TYPES, example, examples, slow

pytestmark = pytest.mark.usefixtures("process_group")
SHAPES = [(), (0,), (3, 2), (33, 1025)]


@pytest.mark.parametrize("dtype", [*TYPES, torch.complex64], ids=str)
def test_everything_moves(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    for shape in SHAPES:
        expected, mine = examples(shape, dtype), example(rank, shape, dtype)
        for root in {0, size - 1}:
            tensor = mine.clone()
            dist.broadcast(tensor, root)
            assert tensor.equal(expected[root])
            got = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
            dist.gather(mine, got, root)
            assert got is None or torch.stack(got).equal(expected)
            tensor = torch.empty_like(mine)
            dist.scatter(tensor, list(expected) if rank == root else None, root)
            assert tensor.equal(mine)
        got = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(got, mine)
        assert torch.stack(got).equal(expected)
        whole = torch.empty_like(expected)
        dist.all_gather_into_tensor(whole, mine)
        assert whole.equal(expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_everything_is_reduced(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    operations = {"SUM": "sum", "MIN": "amin", "MAX": "amax", "PRODUCT": "prod"}
    if dtype == torch.bool:
        operations = {"MIN": "all", "MAX": "any"}
    if dtype in (torch.int8, torch.uint8) and size > 2:
        del operations["PRODUCT"]
    for shape in SHAPES:
        whole = examples(shape, dtype)
        for name, function in operations.items():
            wide = whole.float() if dtype.is_floating_point else whole
            expected = getattr(wide, function)(0).to(dtype)
            op, tensor = getattr(dist.ReduceOp, name), example(rank, shape, dtype)
            dist.all_reduce(tensor, op)
            torch.testing.assert_close(tensor, expected)
            tensor = example(rank, shape, dtype)
            dist.reduce(tensor, size - 1, op)
            torch.testing.assert_close(tensor, expected if rank == size - 1 else whole[rank])


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_shares_of_reductions(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = examples((size, 3, 2), dtype)
    expected, given = whole.sum(0, dtype=dtype)[rank], whole[rank].clone()
    output = torch.empty(3, 2, dtype=dtype, device=DEVICE)
    dist.reduce_scatter_tensor(output, given)
    torch.testing.assert_close(output, expected)
    assert given.equal(whole[rank])
    dist.reduce_scatter(output.zero_(), list(given))
    torch.testing.assert_close(output, expected)


def test_reductions_with_factors_and_bits():
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((3,), rank + 1.0, device=DEVICE)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.eq((size + 1) / 2).all()
    tensor = torch.full((3,), rank + 1.0, device=DEVICE)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert tensor.eq(size * (size + 1) / 4).all()
    whole = examples((4,), torch.int32)
    tensor, expected = whole[rank].clone(), whole[0]
    for other in whole[1:]:
        expected = expected ^ other
    dist.all_reduce(tensor, dist.ReduceOp.BXOR)
    assert tensor.equal(expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_uneven_rows(dtype):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [example(other, (other, 3), dtype) for other in range(size)]
    got = [torch.empty_like(part) for part in parts]
    dist.all_gather(got, parts[rank])
    assert all(one.equal(other) for one, other in zip(got, parts))
    sent = [example(rank + to, (rank + to, 2), dtype) for to in range(size)]
    received = [torch.empty(of + rank, 2, dtype=dtype, device=DEVICE) for of in range(size)]
    dist.all_to_all(received, sent)
    for of, tensor in enumerate(received):
        assert tensor.equal(example(of + rank, (of + rank, 2), dtype))
    output = torch.empty(sum(map(len, received)), 2, dtype=dtype, device=DEVICE)
    dist.all_to_all_single(
        output, torch.cat(sent), [len(one) for one in received], [len(one) for one in sent]
    )
    assert output.equal(torch.cat(received))


def test_messages_and_objects():
    rank, size = dist.get_rank(), dist.get_world_size()
    everybody = [None] * size
    dist.all_gather_object(everybody, {"rank": rank})
    assert [one["rank"] for one in everybody] == list(range(size))
    dist.barrier()
    if size == 1:
        return
    for count in (1, LARGE):
        mine, got = example(rank, (count,)), torch.empty(count, device=DEVICE)
        work = dist.isend(mine, (rank + 1) % size)
        dist.recv(got, (rank - 1) % size)
        work.wait()
        assert got.equal(example((rank - 1) % size, (count,)))


def test_streams():
    total = dist.get_world_size() * (dist.get_world_size() + 1) / 2
    for stream in (torch.cuda.current_stream(DEVICE), torch.cuda.Stream(DEVICE)):
        with torch.cuda.stream(stream):
            slow()
            tensor = torch.zeros(LARGE, device=DEVICE).add_(dist.get_rank() + 1)
            work = dist.all_reduce(tensor, async_op=True)
            slow()
            work.wait()
            assert (tensor * 1).eq(total).all()
            tensor.fill_(dist.get_rank() + 1)
            future = dist.all_reduce(tensor, async_op=True).get_future()
            doubled = future.then(lambda done: done.value()[0] * 2)
            assert doubled.wait().eq(2 * total).all()


def test_memory_that_is_freed_and_used_again():
    works = []
    for number in range(30):
        tensor = torch.full((LARGE,), float(number), device=DEVICE)
        whole = torch.empty(dist.get_world_size() * LARGE, device=DEVICE)
        works.append((whole, dist.all_gather_into_tensor(whole, tensor, async_op=True)))
        del tensor
        torch.full((LARGE,), -1.0, device=DEVICE)
    for number, (whole, work) in enumerate(works):
        work.wait()
        assert whole.eq(number).all()
