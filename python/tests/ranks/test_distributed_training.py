"""DDP, FSDP and checkpoints over Sirtaki: training on several ranks is training on one."""

import pytest
import torch
import torch.distributed as dist
from learning import batches, loss, mine, network
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

pytestmark = pytest.mark.usefixtures("process_group")


def train(model, steps, part=mine):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches(steps):
        optimizer.zero_grad()
        loss(model, part(batch)).backward()
        optimizer.step()
    return model


def alone(steps):
    return train(network(), steps, part=lambda batch: batch)


def assert_same(model, other, tolerance=1e-5):
    theirs = dict(other.named_parameters())
    for name, one in model.named_parameters():
        torch.testing.assert_close(one, theirs[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True, "static_graph": True},
        {"bucket_cap_mb": 0.0005},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_ddp(options):
    model = network()
    if dist.get_rank() > 0:
        nn.init.zeros_(model[0].weight)
    model = DistributedDataParallel(model, **options)
    assert_same(train(model, 6).module, alone(6))


def test_ddp_with_a_hook():
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    assert_same(train(model, 4).module, alone(4), tolerance=0.02)


def test_ddp_accumulates_without_sync():
    model = DistributedDataParallel(network())
    [first, second] = batches(2)
    with model.no_sync():
        loss(model, mine(first)).backward()
    loss(model, mine(second)).backward()
    other = network()
    (loss(other, first) + loss(other, second)).backward()
    for one, two in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)


class Halves(nn.Module):
    """Ranks use different halves."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, rows):
        return (self.second if dist.get_rank() % 2 else self.first)(rows)


def test_ddp_with_unused_parameters():
    torch.manual_seed(7)
    model = DistributedDataParallel(Halves(), find_unused_parameters=True)
    for _ in range(2):
        model.zero_grad()
        model(torch.ones(1, 6)).sum().backward()
    size = dist.get_world_size()
    share = (size + 1) // 2 / size
    torch.testing.assert_close(model.module.first.bias.grad, torch.full((3,), share))
    second = model.module.second.bias.grad
    assert second is None if size == 1 else second.eq(1 - share).all()


def test_ddp_with_uneven_inputs():
    model = DistributedDataParallel(network())
    steps = 0
    with model.join():
        for batch in batches(2 + dist.get_rank()):
            loss(model, mine(batch)).backward()
            steps += 1
    assert steps == 2 + dist.get_rank()
    weights = [torch.empty_like(model.module[0].weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module[0].weight.detach())
    assert all(one.equal(weights[0]) for one in weights)


def test_ddp_with_sparse_gradients():
    torch.manual_seed(8)
    table = nn.Embedding(10, 3, sparse=True)
    model = DistributedDataParallel(table)
    model(torch.tensor([dist.get_rank(), 5])).sum().backward()
    size = dist.get_world_size()
    gradient = table.weight.grad.to_dense()
    torch.testing.assert_close(gradient[5], torch.ones(3))
    torch.testing.assert_close(gradient[:size], torch.full((size, 3), 1 / size))


def test_fsdp_of_old():
    if VERSION < (2, 1):
        pytest.skip("FSDP needs a GPU before PyTorch 2.1")
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = fsdp.FullyShardedDataParallel(
        network(),
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    train(model, 3)
    with fsdp.FullyShardedDataParallel.summon_full_params(model):
        assert_same(_plain(model), alone(3))


def _plain(model):
    """The same parameters under the names they have without FSDP."""
    plain = network()
    named = {
        name.replace("_fsdp_wrapped_module.", ""): value
        for name, value in model.named_parameters()
    }
    plain.load_state_dict(named)
    return plain


def _fully_sharded(mesh=None):
    if VERSION < (2, 6):
        pytest.skip("this PyTorch has no fully_shard")
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    shape, names = mesh or ((dist.get_world_size(),), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fsdp.fully_shard(layer, mesh=mesh)
    return fsdp.fully_shard(model, mesh=mesh)


def _whole(model):
    plain = network()
    plain.load_state_dict({name: one.full_tensor() for name, one in model.state_dict().items()})
    return plain


def test_fully_shard():
    model = _fully_sharded()
    assert_same(_whole(train(model, 3)), alone(3))


def test_fully_shard_on_a_mesh_of_two_dimensions(several):
    model = _fully_sharded(((2, dist.get_world_size() // 2), ("replicate", "shard")))
    assert_same(_whole(train(model, 3)), alone(3))


def test_layers_in_parts_on_several_ranks():
    if VERSION < (2, 5):
        pytest.skip("needs a newer PyTorch")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    rows = torch.randn(4, 6, generator=torch.Generator().manual_seed(9))
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    expected = model(rows)
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    output = parallel.parallelize_module(model, mesh, plan)(rows)
    torch.testing.assert_close(output, expected)
    output.sum().backward()


def test_checkpoints_are_resharded(tmp_path_factory):
    model = _fully_sharded()
    from torch.distributed import checkpoint

    place = [str(tmp_path_factory.mktemp("checkpoint"))]
    dist.broadcast_object_list(place)
    train(model, 2)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=place[0])
    dist.barrier()
    plain = network()
    nn.init.zeros_(plain[0].weight)
    checkpoint.load({"model": plain.state_dict()}, checkpoint_id=place[0])
    assert_same(plain, alone(2))
    again = _fully_sharded()
    state = {"model": again.state_dict()}
    checkpoint.load(state, checkpoint_id=place[0])
    again.load_state_dict(state["model"])
    assert_same(_whole(again), alone(2))
