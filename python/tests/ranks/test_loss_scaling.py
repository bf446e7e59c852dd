"""``GradScaler`` with a distributed optimizer, as far as PyTorch scales losses on the host."""

import contextlib
import copy

import pytest
import torch

import sirtaki.torch as hvd

if not hasattr(torch.amp, "GradScaler"):
    pytest.skip("this version of PyTorch scales losses on GPUs only", allow_module_level=True)

ROWS = 4
SCALE = 1024.0


def trainer(wrapped):
    torch.manual_seed(7)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    return model, optimizer, torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=2)


def step(model, optimizer, scaler, batch):
    optimizer.zero_grad()
    scaler.scale(model(batch).square().mean()).backward()
    wrapped = hasattr(optimizer, "skip_synchronize")
    if wrapped:
        optimizer.synchronize()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    with optimizer.skip_synchronize() if wrapped else contextlib.nullcontext():
        scaler.step(optimizer)
    scaler.update()


def batches(count):
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(ROWS * hvd.size(), 3, generator=generator) for _ in range(count)]


def mine(batch):
    return batch[hvd.rank() * ROWS : (hvd.rank() + 1) * ROWS]


def test_all_ranks_together_take_the_steps_of_one():
    several, alone = trainer(True), trainer(False)
    for batch in batches(6):
        step(*several, mine(batch))
        step(*alone, batch)
    for ours, theirs in zip(several[0].parameters(), alone[0].parameters()):
        torch.testing.assert_close(ours, theirs)
    assert several[2].get_scale() == alone[2].get_scale() == 8 * SCALE


def test_an_overflow_on_one_rank_skips_the_step_on_all():
    model, optimizer, scaler = trainer(True)
    before = copy.deepcopy(model.state_dict())
    batch = mine(batches(1)[0])
    step(model, optimizer, scaler, batch * float("inf") if hvd.rank() == 0 else batch)
    assert scaler.get_scale() == SCALE / 2
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    step(model, optimizer, scaler, batch)
    assert not any(value.equal(before[name]) for name, value in model.state_dict().items())
