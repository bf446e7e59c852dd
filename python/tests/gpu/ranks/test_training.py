"""Training on GPUs learns what one process learns from it all; no step waits on the host."""

import copy
import warnings

import pytest
import torch
import torch.distributed as dist
from gpu import DEVICE, STAGED, busy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sirtaki
import sirtaki.torch as hvd

ROWS, WIDTH = 8, 64
FRONT_ENDS = ["hvd", "data_parallel", "apex", "ddp"]


def network():
    torch.manual_seed(4)
    layers = [nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)]
    return nn.Sequential(*layers).to(DEVICE)


def batches(steps):
    """What all ranks see together."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(ROWS * hvd.size(), WIDTH, generator=generator).to(DEVICE)


def mine(batch):
    return batch[ROWS * hvd.rank() :][:ROWS]


def loss(model, batch):
    return (model(batch) - 1).square().mean()


class Trainer:
    """A model with its optimizer, trained by one of the front ends, or by none."""

    def __init__(self, front_end, passes=1, compiled=False):
        self.model = network()
        self.inner = self.model
        if compiled:
            self.model = torch.compile(self.model, backend="aot_eager")
        self.optimizer = torch.optim.SGD(self.inner.parameters(), lr=0.05, momentum=0.9)
        if front_end == "hvd":
            hvd.broadcast_parameters(self.inner.state_dict(), 0)
            self.optimizer = hvd.DistributedOptimizer(
                self.optimizer, self.inner.named_parameters(), backward_passes_per_step=passes
            )
        elif front_end == "data_parallel":
            self.model = sirtaki.data_parallel(self.model)
        elif front_end == "apex":
            self.model = hvd.DistributedDataParallel(self.model)
        elif front_end == "ddp":
            # The compiler wants buckets of 1 MiB or more.
            self.model = DistributedDataParallel(self.model, bucket_cap_mb=1 if compiled else 0.1)

    def step(self, *parts, autocast=False):
        """One step; of several parts all but the last are only accumulated."""
        self.optimizer.zero_grad()
        for number, part in enumerate(parts):
            last = number + 1 == len(parts)
            wait = hasattr(self.model, "no_sync") and not last
            with self.model.no_sync() if wait else torch.enable_grad():
                with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                    result = loss(self.model, part) / len(parts)
                result.backward()
        self.optimizer.step()

    def require_same(self, other, **tolerance):
        for one, two in zip(self.inner.parameters(), other.inner.parameters()):
            torch.testing.assert_close(one, two, **tolerance)


EXACT = {"rtol": 1e-3, "atol": 1e-4}
ROUGH = {"rtol": 5e-2, "atol": 2e-2}


@pytest.fixture(autouse=True)
def quiet(process_group):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("autocast", [False, True], ids=["single", "autocast"])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_learns_what_one_process_learns(front_end, autocast, compiled):
    trainer, alone = Trainer(front_end, compiled=compiled), Trainer(None)
    for batch in batches(10):
        trainer.step(mine(batch), autocast=autocast)
        alone.step(batch, autocast=autocast)
    trainer.require_same(alone, **(ROUGH if autocast else EXACT))


@pytest.mark.parametrize("front_end", ["hvd", "data_parallel", "ddp"])
def test_gradients_accumulate(front_end):
    trainer, alone = Trainer(front_end, passes=2), Trainer(None)
    for batch in batches(6):
        part = mine(batch)
        trainer.step(part[: ROWS // 2], part[ROWS // 2 :])
        alone.step(batch)
    trainer.require_same(alone, **EXACT)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_no_step_synchronizes(front_end):
    trainer = Trainer(front_end)
    data = list(batches(8))
    for batch in data[:4]:
        trainer.step(mine(batch))
    busy(1).synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for batch in data[4:]:
        hvd.barrier()
        done = busy(200)
        trainer.step(mine(batch), autocast=True)
        assert STAGED or not done.query(), "the step has waited for the GPU"
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    weights = hvd.allgather(trainer.inner[0].weight.detach().unsqueeze(0))
    assert all(weight.equal(weights[0]) for weight in weights)


def scaled_step(trainer, scaler, batch, unscale):
    trainer.optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        result = loss(trainer.model, batch)
    scaler.scale(result).backward()
    unscale(trainer.optimizer)
    nn.utils.clip_grad_norm_(trainer.inner.parameters(), 1.0)


def test_grad_scaler_with_distributed_optimizer():
    trainer, alone = Trainer("hvd"), Trainer(None)
    scaler, other = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")

    def unscale_after_synchronize(optimizer):
        optimizer.synchronize()
        scaler.unscale_(optimizer)

    for batch in batches(10):
        scaled_step(trainer, scaler, mine(batch), unscale_after_synchronize)
        with trainer.optimizer.skip_synchronize():
            scaler.step(trainer.optimizer)
        scaler.update()
        scaled_step(alone, other, batch, other.unscale_)
        other.step(alone.optimizer)
        other.update()
    trainer.require_same(alone, **ROUGH)
    assert scaler.get_scale() == other.get_scale()


def test_an_overflow_on_one_rank_skips_the_step_on_all(several):
    trainer, scaler = Trainer("hvd"), torch.amp.GradScaler("cuda", init_scale=1024.0)
    before = copy.deepcopy(trainer.inner.state_dict())
    batch = next(batches(1))
    if hvd.rank() == hvd.size() - 1:
        batch = batch * float("inf")
    trainer.optimizer.zero_grad()
    scaler.scale(loss(trainer.model, mine(batch))).backward()
    trainer.optimizer.synchronize()
    scaler.unscale_(trainer.optimizer)
    with trainer.optimizer.skip_synchronize():
        scaler.step(trainer.optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    for name, value in trainer.inner.state_dict().items():
        assert value.equal(before[name])


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compressed_gradients(compression):
    model, alone = network(), Trainer(None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), compression=getattr(hvd.Compression, compression)
    )
    for batch in batches(10):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
        alone.step(batch)
    for one, two in zip(model.parameters(), alone.inner.parameters()):
        torch.testing.assert_close(one, two, **ROUGH)


def test_gradients_of_16_bits():
    model = network().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for batch in batches(3):
        optimizer.zero_grad()
        loss(model, mine(batch).to(torch.bfloat16)).backward()
        optimizer.step()
    weights = hvd.allgather(model[0].weight.detach().unsqueeze(0))
    assert all(weight.equal(weights[0]) for weight in weights)


def test_ddp_with_a_compression_hook():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    alone, model = Trainer(None), network()
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.1)
    parallel.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches(5):
        optimizer.zero_grad()
        loss(parallel, mine(batch)).backward()
        optimizer.step()
        alone.step(batch)
    for one, two in zip(model.parameters(), alone.inner.parameters()):
        torch.testing.assert_close(one, two, **ROUGH)
