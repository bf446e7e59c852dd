"""A small language model, split by PyTorch's own means in all directions, learns as one process.

Layers are split over ranks with their sequences and losses (``tensor``), parameters are sharded
(``shard``) and replicated (``replicate``), and the product of these is a mesh of ranks.
"""

import pytest
import torch
import torch.distributed as dist
from test_distributed_pytorch import newer_than
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.usefixtures("process_group", "several")

WORDS, WIDTH, ROWS, LENGTH = 16, 8, 8, 12
AXES = ("replicate", "shard", "tensor")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, values):
        return values + self.down(torch.tanh(self.up(self.norm(values))))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(21)
        self.table = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.double()

    def forward(self, words):
        values = self.table(words)
        for block in self.blocks:
            values = block(values)
        return self.head(self.norm(values))


def meshes():
    """Sizes of the axes, so that every axis and every pair of them is used."""
    size = dist.get_world_size()
    if size == 2:
        return [(1, 1, 2), (1, 2, 1), (2, 1, 1)]
    half = size // 2
    pairs = [(1, 1, size), (1, size, 1), (2, half, 1), (1, half, 2), (2, 1, half), (half, 1, 2)]
    return pairs + ([(2, half // 2, 2)] if size % 8 == 0 else [])


def split_layers(model, mesh):
    from torch.distributed.tensor import Replicate, Shard, parallel

    plan = {
        "table": parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "blocks.*.norm": parallel.SequenceParallel(),
        "blocks.*.up": parallel.ColwiseParallel(input_layouts=Shard(1)),
        "blocks.*.down": parallel.RowwiseParallel(output_layouts=Shard(1)),
        "norm": parallel.SequenceParallel(),
        "head": parallel.ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    }
    return parallel.parallelize_module(model, mesh, plan)


class Layout:
    """The model on a mesh of these sizes, and this rank's part of the batches."""

    def __init__(self, sizes):
        from torch.distributed import fsdp
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=AXES)
        self.model = Text()
        self.is_split = sizes[2] > 1
        if self.is_split:
            split_layers(self.model, mesh["tensor"])
        across = mesh["replicate", "shard"] if sizes[0] > 1 else mesh["shard"]
        if sizes[0] * sizes[1] > 1:
            for module in (*self.model.blocks, self.model):
                fsdp.fully_shard(module, mesh=across)
        self.count = sizes[0] * sizes[1]
        self.place = mesh.get_local_rank("replicate") * sizes[1] + mesh.get_local_rank("shard")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def learn(self, words):
        from torch.distributed.tensor.parallel import loss_parallel

        rows = ROWS // self.count
        words = words[rows * self.place : rows * (self.place + 1)]
        self.optimizer.zero_grad()
        if not self.is_split:
            loss_of(self.model, words).backward()
        else:
            with loss_parallel():
                loss_of(self.model, words).backward()

    def gradients(self):
        return {name: whole(one.grad) for name, one in self.model.named_parameters()}

    def weights(self):
        return {name: whole(one.detach()) for name, one in self.model.named_parameters()}


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def loss_of(model, words):
    scores = model(words[:, :-1]).flatten(0, 1)
    return nn.functional.cross_entropy(scores, words[:, 1:].flatten())


def batches(steps):
    generator = torch.Generator().manual_seed(22)
    return [torch.randint(WORDS, (ROWS, LENGTH + 1), generator=generator) for _ in range(steps)]


def alone(steps):
    """The gradients of all steps, and the weights after them."""
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    gradients = []
    for words in batches(steps):
        optimizer.zero_grad()
        loss_of(model, words).backward()
        gradients.append({name: one.grad.clone() for name, one in model.named_parameters()})
        optimizer.step()
    return gradients, {name: one.detach() for name, one in model.named_parameters()}


def assert_same(tensors, expected):
    assert tensors.keys() == expected.keys()
    for name, one in tensors.items():
        torch.testing.assert_close(
            one,
            expected[name],
            rtol=1e-8,
            atol=1e-10,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_every_layout_learns_as_one_process():
    newer_than(2, 6)
    gradients, weights = alone(3)
    for sizes in meshes():
        layout = Layout(sizes)
        for words, expected in zip(batches(3), gradients):
            layout.learn(words)
            assert_same(layout.gradients(), expected)
            layout.optimizer.step()
        assert_same(layout.weights(), weights)


def test_checkpoints_move_between_layouts(tmp_path_factory):
    newer_than(2, 6)
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    place = [str(tmp_path_factory.mktemp("checkpoint"))]
    dist.broadcast_object_list(place)
    _, weights = alone(4)
    for number, (one, two) in enumerate(zip(meshes(), meshes()[1:] + meshes()[:1])):
        before, after = Layout(one), Layout(two)
        train(before, batches(4)[:2])
        folder = f"{place[0]}/{number}"
        model, optimizer = get_state_dict(before.model, before.optimizer)
        checkpoint.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
        model, optimizer = get_state_dict(after.model, after.optimizer)
        state = {"model": model, "optimizer": optimizer}
        checkpoint.load(state, checkpoint_id=folder)
        set_state_dict(
            after.model,
            after.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        train(after, batches(4)[2:])
        assert_same(after.weights(), weights)


def train(layout, given):
    for words in given:
        layout.learn(words)
        layout.optimizer.step()


def test_optimizer_state_in_parts():
    newer_than(2, 0)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    size, rank = dist.get_world_size(), dist.get_rank()
    model = DistributedDataParallel(Text())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    rows = ROWS // size
    for words in batches(3):
        optimizer.zero_grad()
        loss_of(model, words[rows * rank : rows * (rank + 1)]).backward()
        optimizer.step()
    named = {name: one.detach() for name, one in model.module.named_parameters()}
    assert_same(named, alone(3)[1])
    owned = sum(len(state) > 0 for state in optimizer.optim.state.values())
    assert 0 < owned < len(named)
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(optimizer.state_dict()["state"]) == len(named)


def test_a_pipeline_of_sharded_stages():
    """Pipeline by shard on four ranks."""
    newer_than(2, 15)
    if dist.get_world_size() < 4:
        pytest.skip("needs four ranks")
    from test_distributed_pipelines import batch, blocks, learn_alone
    from torch.distributed import fsdp, pipelining
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pipe", "shard"))
    number, replica = mesh.get_local_rank("pipe"), mesh.get_local_rank("shard")
    model = nn.Sequential(*blocks(2))
    learn_alone(model, 0)
    block = fsdp.fully_shard(blocks(2)[number], mesh=mesh["shard"])
    stage = pipelining.PipelineStage(
        block, number, 2, torch.device("cpu"), group=mesh.get_group("pipe")
    )
    schedule = pipelining.Schedule1F1B(stage, 3, loss_fn=nn.functional.mse_loss)
    rows, targets = (half.chunk(2)[replica] for half in batch(0))
    schedule.step(rows) if number == 0 else schedule.step(target=targets)
    for one, other in zip(block.parameters(), model[number].parameters()):
        torch.testing.assert_close(whole(one.grad), other.grad, rtol=1e-10, atol=1e-12)
