"""PyTorch's own pipelines: every schedule gives the loss and the gradients of one process."""

import pytest
import torch
import torch.distributed as dist
from test_distributed_pytorch import newer_than
from torch import nn

pytestmark = pytest.mark.usefixtures("process_group", "several")

WIDTH, ROWS = 5, 24
CPU = torch.device("cpu")
SCHEDULES = {
    "ScheduleGPipe": 1,
    "Schedule1F1B": 1,
    "ScheduleLoopedBFS": 2,
    "ScheduleInterleaved1F1B": 2,
    "ScheduleInterleavedZeroBubble": 2,
    "ScheduleZBVZeroBubble": 2,
    "ScheduleDualPipeV": 2,
}
"""Stages of a rank by schedule."""


def fits(name, parts, ranks):
    """Whether PyTorch has this schedule for so many micro-batches."""
    if name in ("Schedule1F1B", "ScheduleDualPipeV"):
        return parts >= SCHEDULES[name] * ranks
    if name in ("ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble"):
        return parts % max(1, parts // ranks) == 0
    return True


def blocks(count):
    torch.manual_seed(11)
    layers = [(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh()) for _ in range(count)]
    return [nn.Sequential(*block).double() for block in layers]


def batch(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(2, ROWS, WIDTH, generator=generator, dtype=torch.float64)


def learn_alone(model, number):
    rows, targets = batch(number)
    model.zero_grad()
    loss = nn.functional.mse_loss(model(rows), targets)
    loss.backward()
    return loss.detach()


def pipeline(name, parts, group, loss=nn.functional.mse_loss):
    """The schedule, and the blocks of this rank by number."""
    from torch.distributed import pipelining
    from torch.distributed.pipelining import schedules

    kind, each = getattr(schedules, name), SCHEDULES[name]
    size, place = dist.get_world_size(group), dist.get_rank(group)
    count = each * size
    in_v = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
    numbers = [place, count - 1 - place] if in_v else list(range(place, count, size))
    whole = blocks(count)
    stages = [
        pipelining.PipelineStage(whole[number], number, count, CPU, group=group)
        for number in numbers
    ]
    given = stages[0] if each == 1 else stages
    schedule = kind(given, parts, loss_fn=loss)
    return schedule, {number: whole[number] for number in numbers}


def step(schedule, numbers, count, rows, targets):
    """One step; returns the loss where the last stage is."""
    losses = []
    last = count - 1 in numbers
    arguments = {"target": targets, "losses": losses} if last else {}
    schedule.step(*([rows] if 0 in numbers else []), **arguments)
    return torch.stack(losses).mean().detach() if last else None


def assert_gradients(mine, model):
    for number, block in mine.items():
        for one, other in zip(block.parameters(), model[number].parameters()):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12)


def compare(name, parts, group=None):
    schedule, mine = pipeline(name, parts, group)
    count = SCHEDULES[name] * dist.get_world_size(group)
    model = nn.Sequential(*blocks(count))
    # Shapes are exchanged in the first step only.
    for number in range(2):
        expected = learn_alone(model, number)
        for block in mine.values():
            block.zero_grad()
        loss = step(schedule, mine, count, *batch(number))
        if loss is not None:
            torch.testing.assert_close(loss, expected)
        assert_gradients(mine, model)


CASES = [
    pytest.param(name, parts, id=f"{name.removeprefix('Schedule')}-{parts}")
    for name in SCHEDULES
    for parts in (1, 2, 3, 4, 6, 8)
]


@pytest.mark.parametrize(("name", "parts"), CASES)
def test_schedules(name, parts):
    newer_than(2, 15)
    if not fits(name, parts, dist.get_world_size()):
        pytest.skip("PyTorch has no such schedule")
    compare(name, parts)


def test_two_pipelines_side_by_side():
    """On a mesh of data by pipeline, gradients are averaged over the pipelines."""
    newer_than(2, 15)
    if dist.get_world_size() < 4:
        pytest.skip("needs four ranks")
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "pipe"))
    data, pipe = mesh.get_group("data"), mesh.get_group("pipe")
    for name, each in SCHEDULES.items():
        schedule, mine = pipeline(name, 6, pipe)
        count = 2 * each
        model = nn.Sequential(*blocks(count))
        learn_alone(model, 0)
        half = ROWS // 2 * dist.get_rank(data)
        step(schedule, mine, count, *batch(0)[:, half : half + ROWS // 2])
        for block in mine.values():
            for parameter in block.parameters():
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, group=data)
        assert_gradients(mine, model)


def test_evaluation():
    newer_than(2, 15)
    schedule, mine = pipeline("ScheduleGPipe", 3, None, loss=None)
    count, rows = dist.get_world_size(), batch(5)[0]
    output = schedule.eval(*([rows] if 0 in mine else []))
    if count - 1 in mine:
        with torch.no_grad():
            torch.testing.assert_close(output, nn.Sequential(*blocks(count))(rows))
