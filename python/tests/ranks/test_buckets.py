"""Gradients that are handed in together, as those of GPUs are; here those of the host are, too."""

import pytest
import torch
from learning import batches, loss, mine, network
from torch import nn

import sirtaki
import sirtaki.torch as hvd
from sirtaki.torch import _buckets

OPTIMIZERS = {
    "plain": {},
    "sum": {"op": hvd.Sum},
    "predivide": {"gradient_predivide_factor": 2.0},
    "fp16": {"compression": hvd.Compression.fp16},
    "one group": {"groups": 1},
    "two passes": {"backward_passes_per_step": 2},
}


@pytest.fixture(autouse=True)
def collected(monkeypatch):
    """Every gradient is collected, and buckets are small: the network has several."""
    monkeypatch.setattr(_buckets, "is_collected", lambda gradient: not gradient.is_sparse)
    monkeypatch.setattr(_buckets, "FIRST", 100)
    monkeypatch.setattr(_buckets, "LATER", 500)


@pytest.fixture
def calls(monkeypatch):
    """The names of each call by which gradients were handed in."""
    made, reduce_each = [], _buckets.reduce_each

    def noted(gradients, names, *how):
        made.append(list(names))
        return reduce_each(gradients, names, *how)

    monkeypatch.setattr(_buckets, "reduce_each", noted)
    return made


def assert_same(model, other, tolerance):
    for one, two in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def alone(steps, rate):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for batch in batches(steps):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_distributed_optimizer(kind, several, calls):
    options = OPTIMIZERS[kind]
    passes = options.get("backward_passes_per_step", 1)
    shares = passes * (hvd.size() if options.get("op") == hvd.Sum else 1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 / shares, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    for batch in batches(4):
        optimizer.zero_grad()
        for _ in range(passes):
            loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(4, 0.05), 0.02 if kind == "fp16" else 1e-5)
    names = [f"gradient.{name}" for name, _ in model.named_parameters()]
    if kind == "one group":
        assert calls == []
    else:
        handed_in = sorted(name for call in calls for name in call)
        assert handed_in == sorted(4 * names) and 8 <= len(calls) < len(handed_in)


def test_data_parallel_with_parameters_that_some_ranks_do_not_use(several, calls):
    class Several(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(network() for _ in range(hvd.size() + 1))

        def forward(self, rows):
            return self.parts[0](rows) + self.parts[hvd.rank()](rows)

    model = sirtaki.data_parallel(Several())
    for _ in range(2):
        model.zero_grad()
        loss(model, mine(next(batches(1)))).backward()
    expected = []
    for rank in range(hvd.size()):
        whole = Several()
        output = mine(next(batches(1)), rank)
        rows = whole.parts[0](output[0]) + whole.parts[rank](output[0])
        nn.functional.mse_loss(rows, output[1]).backward()
        expected.append([p.grad for p in whole.parameters()])
    for parameter, gradients in zip(model.parameters(), zip(*expected)):
        there = [gradient for gradient in gradients if gradient is not None]
        assert (parameter.grad is None) == (not there)
        if there:
            torch.testing.assert_close(parameter.grad, sum(there) / hvd.size())
    assert sum(map(len, calls)) == 2 * len(list(model.parameters()))


def test_a_difference_is_an_error_that_names_the_tensor(several):
    model = network()
    if hvd.rank() == 1:
        model[2] = nn.Linear(16, 16, bias=True).double()
        model[1] = type("ToDouble", (nn.Module,), {"forward": lambda _, rows: rows.double()})()
        model[3] = type("ToSingle", (nn.Module,), {"forward": lambda _, rows: rows.float()})()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    loss(model, mine(next(batches(1)))).backward()
    with pytest.raises(sirtaki.Error, match=r"gradient\.2\.(weight|bias)"):
        optimizer.synchronize()
    hvd.barrier()


def test_a_name_in_use_is_refused(several):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    if hvd.rank() == 0:
        loss(model, mine(next(batches(1)))).backward()
        with pytest.raises(ValueError, match="same name is currently being processed"):
            hvd.allreduce_async(torch.ones(1), name="gradient.4.bias")
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
        hvd.barrier()
    else:
        hvd.barrier()
        loss(model, mine(next(batches(1)))).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_rank_without_batches_joins(several):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for _ in range(3 if hvd.rank() == 0 else 1):
        optimizer.zero_grad()
        loss(model, mine(next(batches(1)))).backward()
        optimizer.step()
    assert hvd.join() == 0


def test_state_is_loaded_in_the_middle_of_a_step(several):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = optimizer.state_dict()
    loss(model, mine(next(batches(1)))).backward()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    loss(model, mine(next(batches(1)))).backward()
    optimizer.step()


def test_apex_with_everything_at_the_end(several, calls):
    model = hvd.DistributedDataParallel(network(), delay_allreduce=True)
    loss(model, mine(next(batches(1)))).backward()
    whole = network()
    loss(whole, next(batches(1))).backward()
    for one, two in zip(model.parameters(), whole.parameters()):
        torch.testing.assert_close(one.grad, two.grad)
    assert [len(names) for names in calls] == [6]
