"""Communication hooks of DDP, PyTorch's own and such as wait for other collectives inside."""

import inspect
import time

import pytest
import torch
import torch.distributed as dist
from learning import batches, loss, mine, network
from test_distributed_training import VERSION, alone, assert_same, train
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.usefixtures("process_group")


def hooked(state, hook, **options):
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0005, **options)
    model.register_comm_hook(state, hook)
    return train(model, 4).module


def assert_equal_on_all_ranks(model):
    for parameter in model.parameters():
        all_of_them = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(all_of_them, parameter.detach())
        assert all(one.equal(all_of_them[0]) for one in all_of_them)


def power_state():
    return powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)


HOOKS = {
    "allreduce": lambda: (None, default_hooks.allreduce_hook, 1e-5),
    "fp16": lambda: (None, default_hooks.fp16_compress_hook, 0.02),
    "bf16": lambda: (None, default_hooks.bf16_compress_hook, 0.02),
    "powerSGD": lambda: (power_state(), powerSGD_hook.powerSGD_hook, None),
    "bf16 powerSGD": lambda: (
        power_state(),
        default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook),
        None,
    ),
    "fp16 powerSGD": lambda: (
        power_state(),
        default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook),
        None,
    ),
    "quantized by tensor": lambda: (
        dist.group.WORLD,
        quantization_hooks.quantization_pertensor_hook,
        0.2,
    ),
    "quantized by channel": lambda: (
        dist.group.WORLD,
        quantization_hooks.quantization_perchannel_hook,
        0.2,
    ),
    "post-local SGD": lambda: (
        post_localSGD_hook.PostLocalSGDState(None, None, start_localSGD_iter=100),
        post_localSGD_hook.post_localSGD_hook,
        1e-5,
    ),
}
ONCE_ON_GPUS_ONLY = {"fp16 powerSGD", "quantized by tensor", "quantized by channel"}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_pytorch(name):
    if VERSION < (2, 0):
        pytest.skip("the hooks of this PyTorch differ")
    if VERSION < (2, 1) and name in ONCE_ON_GPUS_ONLY:
        pytest.skip("this hook of this PyTorch needs GPUs")
    state, hook, tolerance = HOOKS[name]()
    model = hooked(state, hook)
    assert_equal_on_all_ranks(model)
    if tolerance is not None:
        assert_same(model, alone(4), tolerance)


def test_a_hook_that_pytorch_has_in_cpp():
    """Its other one, with half precision, takes results apart that only C++ can make."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    assert_same(train(model, 4).module, alone(4))


SGD = {"lr": 0.05, "momentum": 0.9}
"""As ``train`` has it."""


def step_by_hook(model, steps):
    for batch in batches(steps):
        model.zero_grad()
        loss(model, mine(batch)).backward()
    return model.module


@pytest.mark.skipif(VERSION < (2, 0), reason="DDP of this PyTorch cannot be asked to")
def test_an_optimizer_that_steps_in_the_hook():
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    model._register_fused_optim(torch.optim.SGD, **SGD)
    stepped = step_by_hook(model, 4)
    assert_equal_on_all_ranks(stepped)
    assert_same(stepped, alone(4))


@pytest.mark.skipif(VERSION < (2, 0), reason="DDP of this PyTorch cannot be asked to")
def test_an_optimizer_that_steps_in_the_hook_for_some_parameters():
    """The others are left to an optimizer of the usual kind."""
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    first, *rest = model.module.parameters()
    model._register_fused_optim(torch.optim.SGD, optim_params=[first], **SGD)
    optimizer = torch.optim.SGD(rest, **SGD)
    for batch in batches(4):
        model.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model.module, alone(4))


@pytest.mark.parametrize("shard", [False, True], ids=["whole buckets", "shards"])
@pytest.mark.parametrize("name", ["hook_with_zero_step", "hook_with_zero_step_interleaved"])
def test_zero_steps_in_the_hook(name, shard):
    """Ranks step for some of the parameters each, and hand them to the others from callbacks."""
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    if "currently requires" in inspect.getsource(ddp_zero_hook):
        pytest.skip("these hooks of this PyTorch refuse all but NCCL")
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    zero = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, overlap_with_ddp=True, **SGD
    )
    hook = getattr(ddp_zero_hook, name)
    reduce = default_hooks.allreduce_hook
    model.register_comm_hook(None, hook(reduce, model, zero, shard_buckets=shard))
    stepped = step_by_hook(model, 6)
    assert_equal_on_all_ranks(stepped)
    # Two steps pass until it knows DDP's buckets.
    other = network()
    optimizer = torch.optim.SGD(other.parameters(), **SGD)
    for batch in list(batches(6))[2:]:
        optimizer.zero_grad()
        loss(other, batch).backward()
        optimizer.step()
    assert_same(stepped, other)


def test_a_hook_that_does_nothing():
    hooked(None, debugging_hooks.noop_hook)


def reduced(tensor):
    tensor = tensor / dist.get_world_size()
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0])


def test_a_hook_that_waits_for_another_future_inside():
    """With one thread for all callbacks, the inner future would never be fulfilled."""

    def hook(_, bucket):
        def again(first):
            same = [reduced(first.value()) for _ in range(3)]
            return torch.stack([future.wait() for future in same]).mean(0)

        return reduced(bucket.buffer()).then(again)

    assert_same(hooked(None, hook), alone(4))


def test_futures_that_wait_for_later_ones_in_any_depth():
    def nested(depth):
        future = reduced(torch.full((3,), float(depth)))
        if depth == 0:
            return future
        return future.then(lambda done: done.value() + nested(depth - 1).wait())

    assert nested(20).wait().tolist() == [210.0] * 3
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(5)]
    # The first callback needs all the others.
    futures = [work.get_future() for work in works]
    first = futures[0].then(lambda _: [future.wait()[0].sum().item() for future in futures[1:]])
    assert first.wait() == [2.0 * dist.get_world_size()] * 4


def test_a_callback_that_fails_fails_its_future_alone():
    def fail(_):
        raise ValueError("on purpose")

    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    with pytest.raises(Exception, match="on purpose"):
        future.then(fail).wait()
    assert future.wait()[0].eq(dist.get_world_size()).all()


def test_a_callback_that_takes_long_is_not_taken_for_a_deadlock(several):
    """Meanwhile all other threads wait for each other, and only the callback can end that."""
    group, late, common = dist.new_group(), torch.ones(7), torch.ones(3)
    if dist.get_rank() == 0:

        def submit_late(_):
            # As a computation would: longer than it takes to notice that ranks are blocked.
            time.sleep(2)
            return dist.all_reduce(late, group=group, async_op=True).get_future().wait()

        first = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        future = first.get_future().then(submit_late)
        dist.all_reduce(common, group=group)
        future.wait()
    else:
        dist.all_reduce(torch.ones(2), group=group)
        dist.all_reduce(late, group=group)
        dist.all_reduce(common, group=group)
    assert late.eq(dist.get_world_size()).all() and common.eq(dist.get_world_size()).all()
