"""Messages between two ranks over ``torch.distributed``."""

import pytest
import torch
import torch.distributed as dist
from test_distributed_pytorch import newer_than
from test_distributed_training import VERSION

import sirtaki

pytestmark = pytest.mark.usefixtures("process_group", "several")
LARGE = 700_000
"""Elements of a tensor that fits no buffer between two ranks."""


def rank():
    return dist.get_rank()


def others():
    return [other for other in range(dist.get_world_size()) if other != rank()]


def numbers(sender, receiver, length=3):
    return torch.full((length,), 10.0 * sender + receiver)


@pytest.mark.parametrize("length", [0, 1, LARGE])
def test_both_directions_at_once(length):
    sends = [dist.isend(numbers(rank(), other, length), other) for other in others()]
    got = {other: torch.empty(length) for other in others()}
    receives = [dist.irecv(tensor, other) for other, tensor in got.items()]
    for work in sends + receives:
        work.wait()
    assert all(tensor.equal(numbers(other, rank(), length)) for other, tensor in got.items())


def test_a_batch_is_done_when_its_last_work_is():
    batch, got = [], {}
    for other in others():
        got[other] = torch.empty(LARGE)
        batch.append(dist.P2POp(dist.irecv, got[other], other))
    batch += [dist.P2POp(dist.isend, numbers(rank(), to, LARGE), to) for to in others()]
    # Small ones come last, and nobody waits for the others.
    got_late = {other: torch.empty(3) for other in others()}
    batch += [dist.P2POp(dist.isend, numbers(rank(), to), to, tag=1) for to in others()]
    batch += [dist.P2POp(dist.irecv, got_late[other], other, tag=1) for other in others()]
    works = dist.batch_isend_irecv(batch)
    # PyTorch before 2.1 has no batches: these are works of their own.
    for work in works if VERSION < (2, 1) else works[-1:]:
        work.wait()
    for other in others():
        assert got[other].equal(numbers(other, rank(), LARGE))
        assert got_late[other].equal(numbers(other, rank()))


def test_messages_that_nobody_keeps_arrive():
    for number in range(200):
        for other in others():
            dist.isend(torch.tensor([number]), other)
    for number in range(200):
        for other in others():
            got = torch.tensor([-1])
            dist.recv(got, other)
            assert got.item() == number
    dist.barrier()


def test_several_as_one():
    newer_than(2, 1)
    got = {other: torch.empty(3) for other in others()}
    cpu = torch.device("cpu")
    manager = dist.distributed_c10d._coalescing_manager
    with manager(device=cpu, async_ops=True) as coalesced:
        for other in others():
            dist.isend(numbers(rank(), other), other)
            dist.irecv(got[other], other)
    coalesced.wait()
    assert all(tensor.equal(numbers(other, rank())) for other, tensor in got.items())


def test_from_whoever_is_first():
    if rank() > 0:
        for number in range(3):
            dist.send(torch.tensor([rank(), number]), 0, tag=5)
    else:
        seen = {other: [] for other in others()}
        for _ in range(3 * len(others())):
            got = torch.empty(2, dtype=torch.int64)
            sender = dist.recv(got, tag=5)
            assert sender == got[0].item()
            seen[sender].append(got[1].item())
        assert all(numbers == [0, 1, 2] for numbers in seen.values())
    dist.barrier()


def test_only_sizes_have_to_agree():
    first = rank() == 0
    if rank() > 1:
        return
    if first:
        dist.send(torch.arange(6.0).reshape(2, 3), 1)
    else:
        rows = torch.empty(3, 2).t()
        dist.recv(rows, 0)
        assert rows.reshape(-1).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(sirtaki.Error, match="from rank 0 to rank 1: different shapes"):
        dist.send(torch.empty(4), 1) if first else dist.recv(torch.empty(5), 0)
    with pytest.raises(sirtaki.Error, match="from rank 0 to rank 1: different types"):
        dist.send(torch.empty(4), 1) if first else dist.recv(torch.empty(4).double(), 0)
    got = torch.tensor([rank() + 1])
    dist.send(got, 1) if first else dist.recv(got, 0)
    assert got.item() == 1


def test_in_a_group_of_its_own():
    members = [0, dist.get_world_size() - 1]
    group = dist.new_group(members)
    if rank() in members:
        other = members[1 - members.index(rank())]
        in_world, in_group = torch.empty(3), torch.empty(3)
        sends = [
            dist.isend(numbers(rank(), 1), other),
            dist.isend(numbers(rank(), 2), other, group),
        ]
        dist.recv(in_group, other, group)
        dist.recv(in_world, other)
        assert in_world.equal(numbers(other, 1)) and in_group.equal(numbers(other, 2))
        for send in sends:
            send.wait()
    dist.barrier()
    if rank() in members:
        dist.destroy_process_group(group)
