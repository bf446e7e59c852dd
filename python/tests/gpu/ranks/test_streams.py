"""Nothing waits on the host: results are right whatever streams a program uses, and it goes on."""

import pytest
import torch
import torch.distributed as dist
from gpu import DEVICE, LARGE, STAGED, busy, slow

import sirtaki
import sirtaki.torch as hvd


def total():
    return sum(range(1, hvd.size() + 1))


def test_inputs_that_are_still_being_computed():
    for _ in range(5):
        slow()
        # The collective must wait for this stream.
        mine = torch.zeros(LARGE, device=DEVICE).add_(hvd.rank() + 1)
        handle = hvd.allreduce_async_(mine, op=hvd.Sum, name="late input")
        slow()
        result = hvd.synchronize(handle)
        # Read on this stream, which must wait for the collective.
        assert (result * 1).sum().item() == LARGE * total()


def test_other_streams():
    side = torch.cuda.Stream(DEVICE)
    with torch.cuda.stream(side):
        slow()
        mine = torch.full((LARGE,), float(hvd.rank()), device=DEVICE)
        result = hvd.allreduce(mine, op=hvd.Average)
        assert result.eq((hvd.size() - 1) / 2).all()


def test_submitted_on_one_stream_and_awaited_on_another():
    side = torch.cuda.Stream(DEVICE)
    for _ in range(5):
        with torch.cuda.stream(side):
            busy(5)
            mine = torch.full((LARGE,), hvd.rank() + 1.0, device=DEVICE)
            handle = hvd.allreduce_async(mine, op=hvd.Sum, name="between streams")
        result = hvd.synchronize(handle)
        result.record_stream(torch.cuda.current_stream())
        assert result.eq(total()).all()


@pytest.mark.parametrize("collective", ["allreduce", "allreduce_", "allgather", "broadcast_"])
def test_memory_that_is_freed_and_used_again(collective):
    handles = []
    submit = {
        "allreduce": lambda tensor, name: hvd.allreduce_async(tensor, name=name),
        "allreduce_": lambda tensor, name: hvd.allreduce_async_(tensor, name=name),
        "allgather": lambda tensor, name: hvd.allgather_async(tensor, name=name),
        "broadcast_": lambda tensor, name: hvd.broadcast_async_(tensor, 0, name=name),
    }[collective]
    for number in range(30):
        busy(1)
        mine = torch.full((LARGE,), float(number), device=DEVICE)
        handles.append(submit(mine, f"freed {number}"))
        del mine
        # Whoever gets the freed memory writes into it at once.
        torch.full((LARGE,), -1.0, device=DEVICE)
    for number, handle in enumerate(handles):
        assert hvd.synchronize(handle).eq(number).all()


def test_a_result_that_nobody_waits_for():
    for number in range(10):
        hvd.allreduce_async(torch.ones(LARGE, device=DEVICE), name=f"lost {number}")
        torch.full((LARGE,), -1.0, device=DEVICE)
    got = hvd.allreduce(torch.ones(LARGE, device=DEVICE), op=hvd.Sum)
    assert got.eq(hvd.size()).all()


def test_a_graph_cannot_contain_a_collective():
    mine = torch.ones(LARGE, device=DEVICE)
    captured = "CUDA graph is being captured"
    with pytest.raises(ValueError, match=captured), torch.cuda.graph(torch.cuda.CUDAGraph()):
        mine.mul_(1.0)
        hvd.allreduce_(mine, op=hvd.Sum, name="captured")
    handle = hvd.allreduce_async_(mine, op=hvd.Sum, name="awaited in a capture")
    with pytest.raises(sirtaki.Error, match=captured), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.ones(1, device=DEVICE).mul_(1.0)
        hvd.synchronize(handle)
    torch.cuda.synchronize()
    # Beside a graph of what one rank computes, collectives work as ever.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mine.add_(1)
    for _ in range(3):
        mine.zero_()
        graph.replay()
        hvd.allreduce_(mine, op=hvd.Sum, name="after a replay")
        assert mine.eq(hvd.size()).all()


def submit_while_busy(submit, rounds=10, each=20):
    """Submits tensors and waits for them, all of it while the GPU is busy for 100 ms."""
    for _ in range(rounds):
        tensors = [torch.ones(1000, device=DEVICE) for _ in range(each)]
        hvd.barrier()
        torch.cuda.synchronize()
        done = busy(100)
        waits = [submit(tensor, number) for number, tensor in enumerate(tensors)]
        assert not done.query(), "the GPU was through before everything was submitted"
        for wait in waits:
            wait()
        assert STAGED or not done.query(), "waiting for a result has waited for the GPU"
        torch.cuda.synchronize()


def test_submitting_does_not_wait_for_the_gpu():
    def submit(tensor, number):
        return hvd.allreduce_async_(tensor, name=f"busy {number}").wait

    submit_while_busy(submit)


def test_submitting_to_a_group_does_not_wait_for_the_gpu(process_group):
    def submit(tensor, number):
        return dist.all_reduce(tensor, async_op=True).wait

    submit_while_busy(submit)


def test_sync_batch_norm():
    norm = hvd.SyncBatchNorm(3).to(DEVICE)
    batch = torch.randn(4, 3, 5, device=DEVICE) + hvd.rank()
    whole = hvd.allgather(batch)
    torch.testing.assert_close(
        hvd.allgather(norm(batch)), torch.nn.BatchNorm1d(3).to(DEVICE)(whole)
    )


def test_parameters():
    model = torch.nn.Linear(3, 3).to(DEVICE)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    weights = hvd.allgather(model.weight.detach().unsqueeze(0))
    assert all(torch.equal(weight, weights[0]) for weight in weights)
