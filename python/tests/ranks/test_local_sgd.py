"""Weights that are averaged every few steps."""

import copy

import pytest
import torch
from learning import batches, loss, mine, network
from test_training import alone, assert_same

import sirtaki.torch as hvd
from sirtaki.torch._differences import Bytes, Halves, Whole


def train(model, optimizer, all_batches):
    for batch in all_batches:
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    return model


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.05, **options)


def assert_equal_on_all_ranks(model):
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert all(one.equal(weights) for one in hvd.allgather(weights[None]))


def assert_different_on_ranks(model):
    weights = next(model.parameters()).detach().flatten()
    one, other, *_ = hvd.allgather(weights[None])
    assert not one.equal(other)


def test_an_average_after_every_step_is_data_parallelism():
    model = network()
    train(model, hvd.LocalSGD(sgd(model), every=1), batches(5))
    assert_same(model, alone(5, lambda p: torch.optim.SGD(p, lr=0.05)))
    assert_equal_on_all_ranks(model)


def test_state_can_be_averaged_too():
    model = network()
    train(model, hvd.LocalSGD(sgd(model, momentum=0.9), every=1, momentum="average"), batches(5))
    assert_same(model, alone(5))


def test_ranks_step_alone_within_a_window(several):
    model = network()
    optimizer = hvd.LocalSGD(sgd(model), every=3)
    assert isinstance(optimizer, torch.optim.SGD)
    all_batches = list(batches(6))
    train(model, optimizer, all_batches[:2])
    assert_different_on_ranks(model)
    train(model, optimizer, all_batches[2:3])
    assert_equal_on_all_ranks(model)
    # What a rank would get alone, averaged by hand.
    mean = network()
    train(mean, sgd(mean), all_batches[:3])
    for parameter in mean.parameters():
        parameter.data = hvd.allreduce(parameter.detach())
    assert_same(model, mean)
    train(model, optimizer, all_batches[3:4])
    assert_different_on_ranks(model)
    optimizer.average()
    assert_equal_on_all_ranks(model)


def test_steps_in_common_come_first(several):
    model = network()
    optimizer = hvd.LocalSGD(sgd(model, momentum=0.9), every=2, after=4)
    all_batches = list(batches(7))
    train(model, optimizer, all_batches[:4])
    assert_same(model, alone(4))
    train(model, optimizer, all_batches[4:5])
    assert_different_on_ranks(model)
    train(model, optimizer, all_batches[5:6])
    assert_equal_on_all_ranks(model)


def outer_by_hand(windows, every):
    """DiLoCo with momentum in a few lines, on all ranks at once."""
    anchor = network()
    velocity = [torch.zeros_like(p) for p in anchor.parameters()]
    all_batches = list(batches(windows * every))
    optimizers = {}
    for window in range(windows):
        moved = [torch.zeros_like(p) for p in anchor.parameters()]
        for rank in range(hvd.size()):
            model = copy.deepcopy(anchor)
            optimizer = optimizers.setdefault(rank, sgd(model))
            optimizer.param_groups[0]["params"] = list(model.parameters())
            for batch in all_batches[window * every : (window + 1) * every]:
                optimizer.zero_grad()
                loss(model, mine(batch, rank)).backward()
                optimizer.step()
            for total, before, after in zip(moved, anchor.parameters(), model.parameters()):
                total.add_((before.detach() - after.detach()) / hvd.size())
        with torch.no_grad():
            for speed, change, weight in zip(velocity, moved, anchor.parameters()):
                speed.mul_(0.9).add_(change)
                weight.sub_(0.7 * (change + 0.9 * speed))
    return anchor


def test_an_outer_optimizer_steps_with_what_windows_changed():
    model = network()
    train(model, hvd.LocalSGD(sgd(model), every=3, outer="nesterov"), batches(9))
    assert_same(model, outer_by_hand(3, 3))
    assert_equal_on_all_ranks(model)


@pytest.mark.parametrize("wire", ["bf16", "int8"])
def test_fewer_bytes_lead_to_nearly_the_same_weights(wire):
    rough, exact = network(), network()
    train(exact, hvd.LocalSGD(sgd(exact), every=2), batches(20))
    train(rough, hvd.LocalSGD(sgd(rough), every=2, wire=wire), batches(20))
    assert_same(rough, exact, tolerance=0.01)
    assert_equal_on_all_ranks(rough)


@pytest.mark.parametrize("kind", [Whole, Halves, Bytes])
def test_what_rounding_takes_away_comes_later(kind):
    generator = torch.Generator().manual_seed(hvd.rank())
    changes = [torch.randn(700, generator=generator), torch.randn(3, 2, generator=generator)]
    travels = kind(hvd.global_process_set)
    got = [torch.zeros_like(change, dtype=torch.float64) for change in changes]
    for _ in range(50):
        for total, mean in zip(got, travels.mean([c.clone() for c in changes], "test")):
            total.add_(mean)
    wanted = [50 * hvd.allreduce(change).double() for change in changes]
    for one, other in zip(got, wanted):
        # Twice the largest error of one rounding; those of 50 add up to many times that.
        assert (one - other).abs().max() < {Whole: 1e-4, Halves: 0.04, Bytes: 0.06}[kind]


def test_training_continues_in_the_middle_of_a_window():
    for options in ({}, {"outer": "nesterov"}, {"wire": "int8"}, {"wire": "bf16", "after": 2}):
        all_batches = list(batches(8))
        whole = network()
        train(whole, hvd.LocalSGD(sgd(whole, momentum=0.9), every=3, **options), all_batches)
        first = network()
        optimizer = hvd.LocalSGD(sgd(first, momentum=0.9), every=3, **options)
        train(first, optimizer, all_batches[:4])
        state = copy.deepcopy((first.state_dict(), optimizer.state_dict()))
        second = network()
        optimizer = hvd.LocalSGD(sgd(second, momentum=0.9), every=3, **options)
        second.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
        train(second, optimizer, all_batches[4:])
        assert_same(second, whole, tolerance=0)


def test_going_back_to_steps_in_common_averages_gradients_again():
    all_batches = list(batches(5))
    whole, model = network(), network()
    train(whole, hvd.LocalSGD(sgd(whole), every=2, after=2), all_batches)
    optimizer = hvd.LocalSGD(sgd(model), every=2, after=2)
    train(model, optimizer, all_batches[:1])
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, all_batches[1:4])
    model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    train(model, optimizer, all_batches[1:])
    assert_same(model, whole, tolerance=0)


def test_a_rank_that_is_new_when_ranks_join_again_compares_settings_with_all(several):
    model, all_batches = network(), list(batches(2))
    optimizer = hvd.LocalSGD(sgd(model), every=1)
    train(model, optimizer, all_batches[:1])
    hvd.shutdown()
    hvd.init()
    if hvd.rank() > 0:
        model = network()
        optimizer = hvd.LocalSGD(sgd(model), every=1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    train(model, optimizer, all_batches[1:])
    assert_equal_on_all_ranks(model)


def test_schedulers_and_other_optimizers():
    model = network()
    optimizer = hvd.LocalSGD(torch.optim.AdamW(model.parameters(), lr=0.01), every=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for batch in batches(4):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.0025
    assert_equal_on_all_ranks(model)


def test_mistakes_are_named(several):
    def made(**options):
        return hvd.LocalSGD(sgd(network()), **options)

    for options, words in {
        "every": ({"every": 0}, "at least 1, not 0"),
        "after": ({"after": -1}, "not be negative"),
        "momentum": ({"momentum": "lose"}, "'keep' or 'average', not 'lose'"),
        "wire": ({"wire": "int4"}, "'f32' or 'bf16' or 'int8', not 'int4'"),
        "outer": ({"outer": "adam"}, "'nesterov' or a function"),
    }.values():
        with pytest.raises(ValueError, match=words):
            made(**options)
    with pytest.raises(ValueError, match="already averages gradients"):
        hvd.LocalSGD(hvd.DistributedOptimizer(sgd(network())))
    model = network()
    optimizer = hvd.LocalSGD(sgd(model), every=2, momentum=["keep", "average"][hvd.rank() % 2])
    with pytest.raises(ValueError, match="momentum is average on rank 1, but keep on rank 0"):
        train(model, optimizer, batches(2))
