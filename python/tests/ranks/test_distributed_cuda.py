"""``torch.distributed`` over Sirtaki with tensors of a GPU. Ranks may share one."""

import copy

import pytest
import torch
import torch.distributed as dist
from gpu import DEVICE, LARGE, slow
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.usefixtures("process_group")


def test_collectives():
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, total = torch.full((4,), rank + 1.0, device=DEVICE), size * (size + 1) / 2
    tensor = mine.clone()
    dist.all_reduce(tensor)
    assert tensor.eq(total).all()
    dist.broadcast(tensor.copy_(mine), size - 1)
    assert tensor.eq(size).all()
    whole = torch.empty(size, 4, device=DEVICE)
    dist.all_gather_into_tensor(whole, mine)
    assert whole[:, 0].equal(torch.arange(1.0, size + 1, device=DEVICE))
    dist.reduce_scatter_tensor(tensor, torch.ones(4 * size, device=DEVICE) * (rank + 1))
    assert tensor.eq(total).all()
    dist.all_to_all_single(whole, whole + 10 * rank)
    assert whole[:, 0].equal(torch.arange(size, device=DEVICE) * 10.0 + rank + 1)
    everybody = [None] * size
    dist.all_gather_object(everybody, rank)
    assert everybody == list(range(size))
    if size > 1:
        work = dist.isend(mine, (rank + 1) % size)
        dist.recv(tensor, (rank - 1) % size)
        work.wait()
        assert tensor.eq((rank - 1) % size + 1).all()


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


def test_ddp():
    torch.manual_seed(3)
    alone = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(DEVICE)
    model = DistributedDataParallel(copy.deepcopy(alone), bucket_cap_mb=0.01)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        rows = torch.randn(4 * dist.get_world_size(), 64, generator=generator).to(DEVICE)
        alone.zero_grad()
        alone(rows).square().mean().backward()
        model.zero_grad()
        model(rows[4 * dist.get_rank() :][:4]).square().mean().backward()
        for one, two in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-5)
