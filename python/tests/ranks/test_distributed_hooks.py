"""Communication hooks of DDP, PyTorch's own and such as wait for other collectives inside."""

import pytest
import torch
import torch.distributed as dist
from learning import network
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


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_pytorch(name):
    if VERSION < (2, 0):
        pytest.skip("the hooks of this PyTorch differ")
    state, hook, tolerance = HOOKS[name]()
    model = hooked(state, hook)
    assert_equal_on_all_ranks(model)
    if tolerance is not None:
        assert_same(model, alone(4), tolerance)


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
