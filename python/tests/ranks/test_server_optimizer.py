"""Weights on parameter servers that are threads of the ranks."""

import pytest
import torch
from learning import batches, loss, mine, network
from test_local_sgd import assert_equal_on_all_ranks, train
from test_training import alone, assert_same

import sirtaki.torch as hvd


@pytest.mark.parametrize(
    ("rule", "options", "plain"),
    [
        ("sgd", {"lr": 0.05, "momentum": 0.9}, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
        ("adam", {"lr": 0.01, "eps": 1e-6}, lambda p: torch.optim.Adam(p, 0.01, eps=1e-6)),
        ("adamw", {"lr": 0.01}, lambda p: torch.optim.AdamW(p, 0.01)),
        ("adagrad", {"lr": 0.02}, lambda p: torch.optim.Adagrad(p, 0.02)),
    ],
)
def test_in_step_it_is_data_parallelism(rule, options, plain):
    model = network()
    optimizer = hvd.ServerOptimizer(model, rule, servers=2, **options)
    train(model, optimizer, batches(5))
    assert_same(model, alone(5, plain))
    assert_equal_on_all_ranks(model)
    assert list(optimizer.report()["behind"]) == [0]


@pytest.mark.parametrize("delay", [2, None])
def test_weights_are_equal_once_settled(delay):
    model = network()
    optimizer = hvd.ServerOptimizer(model, lr=0.05, delay=delay)
    before = loss(model, next(iter(batches(1)))).item()
    for _ in range(4):
        train(model, optimizer, batches(3))
    optimizer.settle()
    assert_equal_on_all_ranks(model)
    assert loss(model, next(iter(batches(1)))).item() < before
    behind = optimizer.report()["behind"]
    assert sum(behind.values()) == 12
    assert delay is None or max(behind) <= delay


def test_it_goes_on_from_a_checkpoint_on_another_number_of_servers():
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    all_batches = list(batches(6))
    whole = network()
    train(whole, hvd.ServerOptimizer(whole, **options), all_batches)
    first = network()
    optimizer = hvd.ServerOptimizer(first, servers=2, copies=2, **options)
    train(first, optimizer, all_batches[:3])
    optimizer.settle()
    saved, state = first.state_dict(), optimizer.state_dict()
    second = network()
    second.load_state_dict(saved)
    optimizer = hvd.ServerOptimizer(second, servers=3, **options)
    optimizer.load_state_dict(state)
    train(second, optimizer, all_batches[3:])
    for one, other in zip(whole.parameters(), second.parameters()):
        assert one.equal(other)
    with pytest.raises(ValueError, match="the state is that of 'sgd'"):
        hvd.ServerOptimizer(network(), "adam").load_state_dict(state)


def test_only_touched_rows_are_sent():
    table = torch.nn.Embedding(1000, 8, sparse=True)
    optimizer = hvd.ServerOptimizer(table, lr=1.0)
    before = table.weight.detach().clone()
    table(torch.tensor([3, 7, 3])).sum().backward()
    sent = optimizer.report()["sent"]
    optimizer.step()
    assert optimizer.report()["sent"] - sent < 1000
    changed = (table.weight.detach() - before).abs().sum(1).nonzero().flatten()
    assert changed.tolist() == [3, 7]
    assert torch.allclose(table.weight.detach()[3], before[3] - 2.0)


def test_rates_follow_a_scheduler():
    model = network()
    optimizer = hvd.ServerOptimizer(model, lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for batch in batches(4):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.005
    assert_equal_on_all_ranks(model)


def test_mistakes_are_named(several):
    for made, words in [
        (lambda: hvd.ServerOptimizer(network(), "lars"), "one of sgd, adam.*not 'lars'"),
        (lambda: hvd.ServerOptimizer(network(), lr=-1.0), "above zero, not -1.0"),
        (lambda: hvd.ServerOptimizer(network(), delay=-1), "from 0 on, or None, not -1"),
        (lambda: hvd.ServerOptimizer(network(), delay="4"), "not '4'"),
        (lambda: hvd.ServerOptimizer(network(), copies=2), "2 copies of each weight on 1 servers"),
        (lambda: hvd.ServerOptimizer(network(), "adam", momentum=0.9), "adam has no momentum"),
        (lambda: hvd.ServerOptimizer(network(), momentum=-0.9), "momentum must not be negative"),
        (lambda: hvd.ServerOptimizer(network().parameters()), "not generator\nhint: give it the"),
        (lambda: hvd.ServerOptimizer(network().half()), "torch.float16, and servers have float32"),
        (lambda: hvd.ServerOptimizer(torch.nn.ReLU()), "no parameters to train"),
    ]:
        with pytest.raises(ValueError, match=words):
            made()
    with pytest.raises(ValueError, match="delay is 1 on rank 1, but 0 on rank 0"):
        hvd.ServerOptimizer(network(), delay=hvd.rank() % 2)
