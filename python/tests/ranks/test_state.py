"""Models, optimizers and objects made equal, process sets, leaving and coming back."""

import json
import time

import pytest
import torch
from torch import nn
from torch.optim import optimizer as step_hooks

import sirtaki
import sirtaki.torch as hvd


def test_objects_of_different_types_on_different_ranks():
    """The name of an object does not depend on what a rank happens to have."""
    given = {"epoch": 3} if hvd.rank() == 0 else None
    assert hvd.broadcast_object(given, 0) == {"epoch": 3}
    everything = hvd.allgather_object([None, 1, "two", {}][hvd.rank() % 4])
    assert everything == [[None, 1, "two", {}][rank % 4] for rank in range(hvd.size())]


def test_broadcast_parameters():
    root = hvd.size() - 1
    model = nn.BatchNorm1d(3)
    for tensor in model.state_dict().values():
        tensor.fill_(hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root)
    assert all(tensor.eq(root).all() for tensor in model.state_dict().values())
    tensors = [torch.full((2,), hvd.rank()), torch.full((3,), hvd.rank())]
    hvd.broadcast_parameters(tensors, 0)
    assert all(tensor.eq(0).all() for tensor in tensors)
    hvd.broadcast_parameters(list(nn.Linear(2, 2).named_parameters()), 0)
    with pytest.raises(ValueError, match="dict or a list"):
        hvd.broadcast_parameters("parameters", 0)


OPTIMIZERS = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=0.1),
    lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
    lambda p: torch.optim.Adagrad(p, lr=0.1),
    torch.optim.Adadelta,
    torch.optim.Rprop,
]


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("others_have_state", [True, False])
def test_broadcast_optimizer_state(make, others_have_state):
    torch.manual_seed(hvd.rank())
    model = nn.Linear(3, 2)
    optimizer = make(model.parameters())
    if hvd.rank() == 0 or others_have_state:
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5 + hvd.rank()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    every = hvd.allgather_object(optimizer.state_dict())
    assert str(every[hvd.rank()]) == str(every[0])
    assert optimizer.param_groups[0]["lr"] == 0.5
    # The state is that of the parameters, and steps can go on.
    hvd.broadcast_parameters(model.state_dict(), 0)
    model(torch.ones(1, 3)).sum().backward()
    hvd.DistributedOptimizer(optimizer, model.named_parameters()).step()


def test_lbfgs_cannot_be_broadcast():
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(nn.Linear(1, 1).parameters()), 0)


def test_objects():
    mine = {"rank": hvd.rank(), "text": "x" * (1000 * hvd.rank())}
    assert hvd.allgather_object(mine)[0] == {"rank": 0, "text": ""}
    assert [one["rank"] for one in hvd.allgather_object(mine)] == list(range(hvd.size()))
    root = hvd.size() - 1
    got = hvd.broadcast_object(mine if hvd.rank() == root else None, root, name="thing")
    assert got["rank"] == root and len(got["text"]) == 1000 * root
    assert hvd.broadcast_object(lambda: 3)() == 3


def test_process_sets():
    if hvd.size() == 1:
        with pytest.raises(ValueError, match="already"):
            hvd.add_process_set([0])
        return
    even = hvd.add_process_set(hvd.ProcessSet(range(0, hvd.size(), 2)))
    odd = hvd.add_process_set(list(range(1, hvd.size(), 2)))
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set(range(0, hvd.size(), 2))
    ours, theirs = (even, odd) if hvd.rank() % 2 == 0 else (odd, even)
    assert ours.included() and not theirs.included()
    assert ours.rank() == hvd.rank() // 2 and ours.size() == len(ours.ranks)
    # Both at the same time, and all ranks meanwhile.
    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
    mine = torch.tensor([float(hvd.rank())])
    assert hvd.allreduce(mine, op=hvd.Sum, process_set=ours).item() == sum(ours.ranks)
    assert hvd.allgather(mine, process_set=ours).tolist() == [float(r) for r in ours.ranks]
    last = ours.ranks[-1]
    assert hvd.broadcast(mine, last, process_set=ours).item() == last
    assert hvd.broadcast_object(hvd.rank(), last, process_set=ours) == last
    assert hvd.alltoall(torch.ones(ours.size()), process_set=ours).shape == (ours.size(),)
    share = hvd.reducescatter(torch.ones(ours.size()), op=hvd.Sum, process_set=ours)
    assert share.tolist() == [ours.size()]
    hvd.barrier(process_set=ours)
    leaf = torch.ones(2, requires_grad=True)
    hvd.allgather(leaf, process_set=ours).sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0]
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2
    with pytest.raises(hvd.HorovodInternalError, match="not in the process set"):
        hvd.allreduce(mine, process_set=theirs)
    with pytest.raises(hvd.HorovodInternalError, match="root_rank"):
        hvd.broadcast(mine, theirs.ranks[0], process_set=ours)
    with pytest.raises(NotImplementedError):
        hvd.allreduce(mine, op=hvd.Adasum, process_set=ours)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, process_set=ours)
    (model(torch.ones(1, 1)) * hvd.rank()).sum().backward()
    optimizer.step()
    assert model.bias.grad.item() == sum(ours.ranks) / ours.size()
    parallel = sirtaki.data_parallel(nn.Linear(1, 1), process_set=ours)
    (parallel(torch.ones(1, 1)) * hvd.rank()).sum().backward()
    assert parallel.bias.grad.item() == sum(ours.ranks) / ours.size()
    assert hvd.remove_process_set(even) and hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(even) and even.size() is None
    assert not hvd.remove_process_set(hvd.global_process_set)
    with pytest.raises(ValueError, match="integers"):
        hvd.ProcessSet(["a"])


def test_leaving_and_coming_back():
    for _ in range(2):
        hvd.shutdown()
        assert not hvd.is_initialized()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.rank()
        with pytest.raises(ValueError, match="not been initialized"):
            hvd.allreduce(torch.ones(1))
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_what_is_not_done_fails_when_leaving(several):
    handle = hvd.allreduce_async(torch.ones(1), name=f"only on rank {hvd.rank()}")
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(handle)
    hvd.init()
    hvd.barrier()


def test_a_timeline_of_all_ranks(tmp_path):
    path = hvd.broadcast_object(str(tmp_path / "trace.json"), root_rank=0)
    hvd.start_timeline(path)
    hvd.barrier()
    for _ in range(3):
        hvd.allreduce(torch.ones(4), name="seen")
    hvd.barrier()
    # Rank 0 writes what the others tell it, so the file is complete when it says so.
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        assert any("seen" in event.get("name", "") for event in events)


def phases(path):
    """The phases of training steps that a timeline has of each rank."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    names = {"input", "forward", "backward", "optimizer"}
    return [{e["name"] for e in events if e["pid"] == rank} & names for rank in range(hvd.size())]


def assert_marked(path, model, optimizer, expected):
    """Trains until a timeline has the expected phases of all ranks: they hear of it one by one."""
    path = hvd.broadcast_object(str(path), root_rank=0)
    hvd.start_timeline(path)
    deadline, seen, is_late = time.monotonic() + 60, [set()], False
    while not (is_late or all(expected <= names for names in seen)):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 2)).sum().backward()
            optimizer.step()
        news = (phases(path), time.monotonic() > deadline) if hvd.rank() == 0 else None
        seen, is_late = hvd.broadcast_object(news, root_rank=0, name="news")
        time.sleep(0.05)
    hvd.stop_timeline()
    hvd.barrier()
    assert all(expected <= names for names in seen), seen


def test_a_timeline_has_the_phases_of_data_parallel(tmp_path, several):
    model = hvd.data_parallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = {"forward", "backward"}
    if hasattr(step_hooks, "register_optimizer_step_pre_hook"):
        expected |= {"optimizer", "input"}
    assert_marked(tmp_path / "trace.json", model, optimizer, expected)


def test_a_timeline_has_the_phases_of_an_optimizer(tmp_path, several):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    assert_marked(tmp_path / "trace.json", model, optimizer, {"backward", "optimizer"})
