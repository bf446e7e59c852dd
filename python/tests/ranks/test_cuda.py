"""Tensors of a GPU: right results, whatever streams the program uses. Ranks may share one."""

import copy

import pytest
import torch
from gpu import DEVICE, LARGE, slow

import sirtaki
import sirtaki.torch as hvd


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64], ids=str
)
def test_collectives(dtype):
    mine = torch.full((5, 3), hvd.rank() + 1, device=DEVICE).to(dtype)
    total = sum(range(1, hvd.size() + 1))
    assert hvd.allreduce(mine, op=hvd.Sum).eq(total).all()
    assert hvd.allgather(mine)[:, 0].tolist() == [
        r + 1 for r in range(hvd.size()) for _ in range(5)
    ]
    assert hvd.broadcast(mine, hvd.size() - 1).eq(hvd.size()).all()
    assert hvd.reducescatter(mine, op=hvd.Sum).eq(total).all()
    received, counts = hvd.alltoall(mine[: hvd.size()], torch.ones(hvd.size(), dtype=torch.int32))
    assert received.device == DEVICE and counts.tolist() == [1] * hvd.size()
    assert hvd.allreduce_(mine, op=hvd.Sum).eq(total).all() and mine.eq(total).all()


def test_inputs_that_are_still_being_computed():
    for _ in range(5):
        slow()
        # The copy must wait for this stream.
        mine = torch.zeros(LARGE, device=DEVICE).add_(hvd.rank() + 1)
        handle = hvd.allreduce_async_(mine, op=hvd.Sum, name="late input")
        slow()
        result = hvd.synchronize(handle)
        # Read on this stream, which must wait for the copy back.
        assert (result * 1).sum().item() == LARGE * sum(range(1, hvd.size() + 1))


def test_other_streams():
    side = torch.cuda.Stream(DEVICE)
    with torch.cuda.stream(side):
        slow()
        mine = torch.full((LARGE,), float(hvd.rank()), device=DEVICE)
        result = hvd.allreduce(mine, op=hvd.Average)
        assert result.eq((hvd.size() - 1) / 2).all()


def test_memory_that_is_freed_and_used_again():
    handles = []
    for number in range(30):
        handles.append(
            hvd.allreduce_async(
                torch.full((LARGE,), float(number), device=DEVICE), name=f"{number}"
            )
        )
        torch.full((LARGE,), -1.0, device=DEVICE)
    for number, handle in enumerate(handles):
        assert hvd.synchronize(handle).eq(number).all()


@pytest.mark.parametrize("parallel", [True, False])
def test_training(parallel):
    torch.manual_seed(4)
    layers = torch.nn.Linear(50, 400), torch.nn.ReLU(), torch.nn.Linear(400, 1)
    model = torch.nn.Sequential(*layers)
    reference = copy.deepcopy(model)
    model, reference = model.to(DEVICE), reference.to(DEVICE)
    data = torch.randn(8 * hvd.size(), 50, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    part = data[8 * hvd.rank() : 8 * (hvd.rank() + 1)]
    plain = torch.optim.SGD(reference.parameters(), lr=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if parallel:
        model = sirtaki.data_parallel(model)
    else:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(10):
        for network, batch, step in ((reference, data, plain), (model, part, optimizer)):
            step.zero_grad()
            network(batch).square().mean().backward()
            step.step()
    for one, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_sync_batch_norm():
    norm = hvd.SyncBatchNorm(3).to(DEVICE)
    batch = torch.randn(4, 3, 5, device=DEVICE) + hvd.rank()
    whole = hvd.allgather(batch)
    torch.testing.assert_close(
        hvd.allgather(norm(batch)), torch.nn.BatchNorm1d(3).to(DEVICE)(whole)
    )


def test_tensors_of_cpu_and_gpu_in_one_group():
    total = sum(range(1, hvd.size() + 1))
    for devices in ([DEVICE, "cpu", DEVICE], ["cpu", DEVICE]):
        tensors = [torch.full((5,), hvd.rank() + 1.0, device=device) for device in devices]
        for results in (
            hvd.grouped_allreduce(tensors, op=hvd.Sum),
            hvd.grouped_allreduce_(tensors, op=hvd.Sum),
        ):
            for tensor, result in zip(tensors, results):
                assert result.device == tensor.device and result.eq(total).all()
        tensors = [torch.full((5,), hvd.rank() + 1.0, device=device) for device in devices]
        for tensor, result in zip(tensors, hvd.grouped_allgather(tensors)):
            assert result.device == tensor.device and len(result) == 5 * hvd.size()
        shares = [torch.ones(hvd.size(), 2, device=device) for device in devices]
        for tensor, result in zip(shares, hvd.grouped_reducescatter(shares, op=hvd.Sum)):
            assert result.device == tensor.device and result.eq(hvd.size()).all()


def test_parameters():
    model = torch.nn.Linear(3, 3).to(DEVICE)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    weights = hvd.allgather(model.weight.detach().unsqueeze(0))
    assert all(torch.equal(weight, weights[0]) for weight in weights)
