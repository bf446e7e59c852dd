"""Parts of ``torch.distributed`` that ask a back end for more than collectives."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from learning import network
from test_distributed_training import VERSION, alone, assert_same, train
from torch.nn.parallel import DistributedDataParallel

import sirtaki

pytestmark = pytest.mark.usefixtures("process_group")


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def newer_than(*version):
    if version > VERSION:
        pytest.skip("this PyTorch does not have it")


def test_compiled_ddp():
    newer_than(2, 6)
    model = network()
    compiled = torch.compile(DistributedDataParallel(model), backend="aot_eager")
    train(compiled, 4)
    assert_same(model, alone(4))


def test_compiled_collectives():
    newer_than(2, 6)

    @torch.compile(backend="aot_eager")
    def double(tensor):
        dist.all_reduce(tensor)
        return 2 * tensor

    assert double(torch.ones(3)).tolist() == [2.0 * size()] * 3


def test_monitored_barrier(several):
    newer_than(2, 15)
    for _ in range(2):
        dist.monitored_barrier(timeout=timedelta(seconds=100))
    late = list(range(1, size()))
    if rank() == 0:
        with pytest.raises(sirtaki.Error, match=r"^Rank 1 failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.1))
        many = "Rank 1" if late == [1] else "Ranks 1, 2, 3"
        with pytest.raises(sirtaki.Error, match=rf"^{many} failed to pass .* timeout of 0.1 s"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.1), wait_all_ranks=True)
    dist.barrier()
    # The others come when it is over, and are told what rank 0 was.
    if rank() > 0:
        for _ in range(2):
            with pytest.raises(sirtaki.Error, match=rf"^Rank {rank()} .*rank 0: Ranks? 1"):
                dist.monitored_barrier(timeout=timedelta(seconds=100))
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=100))


def test_split_groups(several):
    newer_than(2, 15)
    parts = [list(range(0, size(), 2)), list(reversed(range(1, size(), 2)))]
    mine = parts[rank() % 2]
    group = dist.split_group(split_ranks=parts)
    assert dist.get_rank(group) == mine.index(rank()) and dist.get_world_size(group) == len(mine)
    tensor = torch.full((2,), rank() + 1.0)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(sum(mine) + len(mine)).all()
    # Not everybody has to be in a part, and a part can be divided again.
    first = dist.split_group(split_ranks=[[0]])
    assert (first == dist.GroupMember.NON_GROUP_MEMBER) == (rank() > 0)
    again = dist.split_group(group, [[number] for number in range(len(mine))])
    assert dist.get_world_size(again) == 1


def test_groups_of_processes_that_are_bound_to_a_device():
    newer_than(2, 4)
    whole = dist.distributed_c10d._get_default_group()
    # As after init_process_group(..., device_id=...): PyTorch then has new groups connect at once.
    whole.bound_device_id = torch.device("cpu", 0)
    try:
        group = dist.new_group(backend="sirtaki")
    finally:
        whole.bound_device_id = None
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(size()).all()


def test_coalesced_collectives():
    newer_than(2, 1)
    tensors = [torch.full((number + 1,), rank() + 1.0) for number in range(3)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    total = size() * (size() + 1) / 2
    assert all(tensor.eq(total).all() for tensor in tensors)
    wholes = [torch.empty(size(), 2) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as coalesced:
        for whole in wholes:
            dist.all_gather_into_tensor(whole, torch.full((2,), float(rank())))
    coalesced.wait()
    assert all(whole[:, 0].equal(torch.arange(float(size()))) for whole in wholes)
    shares = [torch.empty(2) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager():
        for share in shares:
            dist.reduce_scatter_tensor(share, torch.ones(2 * size()))
    assert all(share.eq(size()).all() for share in shares)


def test_asynchronous_checkpoints(tmp_path_factory):
    newer_than(2, 6)
    from torch.distributed import checkpoint

    place = [str(tmp_path_factory.mktemp("checkpoint"))]
    dist.broadcast_object_list(place)
    model = train(network(), 2, part=lambda batch: batch)
    checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=place[0]).result()
    dist.barrier()
    loaded = network()
    checkpoint.load({"model": loaded.state_dict()}, checkpoint_id=place[0])
    assert_same(loaded, model)
