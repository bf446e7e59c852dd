"""``DistributedDataParallel`` as in apex: whatever its arguments, gradients are the right ones."""

import copy

import pytest
import torch
from learning import batches, loss, mine, network
from torch import nn

import sirtaki.torch as hvd

WAYS = {
    "default": {},
    "at once": {"message_size": 1},
    "in buckets": {"message_size": 100},
    "delayed": {"delay_allreduce": True},
    "single precision": {"allreduce_always_fp32": True},
    "predivided": {"gradient_predivide_factor": 4.0},
    "no streams": {"num_allreduce_streams": 2, "prof": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_learns_what_one_process_learns(way):
    alone = network()
    model = hvd.DistributedDataParallel(copy.deepcopy(alone), **WAYS[way])
    one, other = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, alone))
    for batch in batches(5):
        for network_, optimizer, part in ((model, one, mine(batch)), (alone, other, batch)):
            optimizer.zero_grad()
            loss(network_, part).backward()
            optimizer.step()
    for mine_, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(mine_, wanted)


def test_all_ranks_get_the_first_ones_model():
    torch.manual_seed(hvd.rank())
    model = hvd.DistributedDataParallel(nn.Linear(3, 2))
    weights = hvd.allgather(model.weight.detach().unsqueeze(0))
    assert all(weight.equal(weights[0]) for weight in weights)


def gradient(**arguments):
    """What the ranks' gradients, which are 1, 2, ... become."""
    model = hvd.DistributedDataParallel(nn.Linear(1, 1, bias=False), **arguments)
    (model(torch.ones(1, 1)) * (hvd.rank() + 1)).sum().backward()
    return model.weight.grad.item()


@pytest.mark.parametrize("delay", [True, False])
def test_averages_sums_and_factors(delay):
    total = sum(range(1, hvd.size() + 1))
    mean = total / hvd.size()
    assert gradient(delay_allreduce=delay) == pytest.approx(mean)
    assert gradient(delay_allreduce=delay, gradient_average=False) == pytest.approx(total)
    predivided = {"delay_allreduce": delay, "gradient_predivide_factor": 2.0}
    assert gradient(**predivided) == pytest.approx(mean)
    # As in apex, a sum is not multiplied again.
    assert gradient(**predivided, gradient_average=False) == pytest.approx(total / 2)
    with pytest.warns(DeprecationWarning, match="gradient_predivide_factor"):
        assert gradient(gradient_average_split_factor=2.0) == pytest.approx(mean)


def test_sparse_gradients_are_summed_with_their_factor(several):
    layer = nn.Embedding(4, 2, sparse=True)
    model = hvd.DistributedDataParallel(
        layer, gradient_average=False, gradient_predivide_factor=2.0
    )
    model(torch.tensor([hvd.rank() % 4])).sum().backward()
    assert layer.weight.grad.to_dense().sum().item() == pytest.approx(2 * hvd.size() / 2)


class Scaled(nn.Module):
    """One weight; not a linear layer, which older versions do not have in half precision."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs):
        return self.weight * inputs


def test_half_precision_travels_as_single(several):
    # Each is in range, their sum is not.
    large = 40_000.0
    model = hvd.DistributedDataParallel(
        Scaled().half(), gradient_average=False, allreduce_always_fp32=True,
        gradient_predivide_factor=2.0 * hvd.size(),
    )  # fmt: skip
    (model(torch.ones(1).half()) * large).sum().backward()
    assert model.weight.grad.dtype == torch.float16
    assert model.weight.grad.item() == pytest.approx(large / 2)


def test_parameters_that_start_the_exchange():
    alone = network()
    copied = copy.deepcopy(alone)
    model = hvd.DistributedDataParallel(
        copied, allreduce_trigger_params=[copied[2].weight, copied[0].bias]
    )
    [batch] = batches(1)
    loss(model, mine(batch)).backward()
    loss(alone, batch).backward()
    for one, other in zip(copied.parameters(), alone.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


def test_gradients_accumulate_while_the_exchange_is_off():
    alone = network()
    model = hvd.DistributedDataParallel(copy.deepcopy(alone))
    first, second = batches(2)
    model.disable_allreduce()
    loss(model, mine(first)).backward()
    model.enable_allreduce()
    loss(model, mine(second)).backward()
    for batch in (first, second):
        loss(alone, batch).backward()
    for one, other in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("delay", [True, False])
def test_parameters_that_some_ranks_do_not_use(several, delay):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

        def forward(self, inputs):
            return self.first(inputs) if hvd.rank() else self.second(inputs)

    model = hvd.DistributedDataParallel(Two(), delay_allreduce=delay)
    model(torch.ones(1, 1)).sum().backward()
    assert model.first.weight.grad.item() == pytest.approx((hvd.size() - 1) / hvd.size())
    assert model.second.weight.grad.item() == pytest.approx(1 / hvd.size())


def test_buffers_of_reduced_gradients():
    model = hvd.DistributedDataParallel(
        network(), delay_allreduce=True, retain_allreduce_buffers=True
    )
    [batch] = batches(1)
    loss(model, mine(batch)).backward()
    [flat] = model.allreduce_buffers
    assert flat.equal(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))


def test_mistakes():
    for arguments, problem in (
        ({"shared_param": True}, "shared_param"),
        ({"allreduce_communicators": []}, "allreduce_communicators"),
        ({"message_size": 0}, "message_size"),
        ({"gradient_predivide_factor": 0.0}, "gradient_predivide_factor"),
        ({"allreduce_trigger_params": [torch.ones(1)]}, "allreduce_trigger_params"),
    ):
        with pytest.raises(ValueError, match=problem):
            hvd.DistributedDataParallel(nn.Linear(1, 1), **arguments)
    model = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="delay_allreduce"):
        hvd.DistributedDataParallel(
            model, allreduce_trigger_params=[model.weight], delay_allreduce=True
        )
    hvd.barrier()
