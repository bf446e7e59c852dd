"""Training on several ranks is training on one with all the data."""

import copy

import pytest
import torch
from learning import ROWS, batches, loss, mine, network
from torch import nn

import sirtaki
import sirtaki.torch as hvd


def alone(steps, make=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)):
    model = network()
    optimizer = make(model.parameters())
    for batch in batches(steps):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return model


def assert_same(model, other, tolerance=1e-5):
    for one, two in zip(model.state_dict().values(), other.state_dict().values()):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


OPTIONS = {
    "plain": {},
    "sum": {"op": hvd.Sum},
    "predivide": {"gradient_predivide_factor": 2.0},
    "two groups": {"groups": 2},
    "bf16 sums": {"compression": hvd.Compression.none, "sparse_as_dense": True},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_distributed_optimizer(options):
    options = OPTIONS[options]
    model = network()
    rate = 0.05 / (hvd.size() if options.get("op") == hvd.Sum else 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    assert isinstance(optimizer, torch.optim.SGD)
    for batch in batches(6):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(6))


def test_optimizers_keep_their_state_and_class():
    model, other = network(), network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for batch in batches(1):
        loss(model, batch).backward()
        optimizer.step()
    steps = [state["step"].item() for state in optimizer.state.values()]
    optimizer = hvd.DistributedOptimizer(optimizer)
    assert [state["step"].item() for state in optimizer.state.values()] == steps
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.zero_grad()
    loss(model, next(batches(1))).backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.005
    assert_same(other, network())


def test_groups_of_tensors():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first, *rest = model.parameters()
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), groups=[[first, rest[0]], [rest[2]]]
    )
    for batch in batches(4):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(4))


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compressed_gradients(compression):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), getattr(hvd.Compression, compression)
    )
    for batch in batches(4):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(4), tolerance=0.02)


class Halved(hvd.Compression.none):
    @staticmethod
    def compress(tensor):
        return tensor * 0.5, "context"

    @staticmethod
    def decompress(tensor, ctx):
        assert ctx == "context"
        return tensor * 2


def test_compressors_of_users():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), Halved)
    for batch in batches(3):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(3))


def test_accumulation():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=2
    )
    for batch in batches(3):
        part = mine(batch)
        optimizer.zero_grad()
        for half in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
            (loss(model, [tensor[half] for tensor in part]) / 2).backward()
        optimizer.step()
    assert_same(model, alone(3))


def test_clipping_between_synchronize_and_step():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    reference = network()
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    for batch in batches(3):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.zero_grad()
        loss(reference, batch).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        plain.step()
    assert_same(model, reference)


def test_mistakes_with_the_optimizer(several):
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=0.05)
    with pytest.raises(ValueError, match="tuples"):
        hvd.DistributedOptimizer(plain, model.parameters())
    with pytest.raises(ValueError, match="unique"):
        hvd.DistributedOptimizer(plain, [("same", p) for p in model.parameters()])
    with pytest.raises(ValueError, match="lacks"):
        hvd.DistributedOptimizer(plain, list(model.named_parameters())[:1])
    with pytest.raises(ValueError, match="> 0"):
        hvd.DistributedOptimizer(plain, backward_passes_per_step=0)
    with pytest.raises(ValueError, match="Average"):
        hvd.DistributedOptimizer(plain, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="groups"):
        hvd.DistributedOptimizer(plain, groups=-1)
    with pytest.raises(ValueError, match="once"):
        parameter = next(model.parameters())
        hvd.DistributedOptimizer(plain, groups=[[parameter], [parameter]])
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    loss(model, mine(next(batches(1)))).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        loss(model, mine(next(batches(1)))).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        optimizer.step()


class Choosing(nn.Module):
    """Uses one of its layers, and one never."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 1) for _ in range(3)])

    def forward(self, input, which):
        return self.layers[which](input)


@pytest.mark.parametrize("parallel", [True, False])
def test_parameters_that_some_do_not_use(parallel):
    torch.manual_seed(1)
    model = Choosing()
    which = hvd.rank() % 2
    if parallel:
        model = sirtaki.data_parallel(model)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    model(torch.ones(2, 3), which).sum().backward()
    if not parallel:
        optimizer.synchronize()
    for layer in range(2):
        share = sum(rank % 2 == layer for rank in range(hvd.size())) / hvd.size()
        if share:
            gradient = model.layers[layer].weight.grad
            torch.testing.assert_close(gradient, torch.full((1, 3), 2 * share))
    if parallel:
        assert model.layers[2].weight.grad is None


@pytest.mark.parametrize("shares", [True, False])
def test_buffers_are_those_of_the_first_rank(shares):
    normal = nn.BatchNorm1d(2)
    model = sirtaki.data_parallel(normal, broadcast_buffers=shares)
    expected = nn.BatchNorm1d(2)
    rows = torch.arange(8.0).reshape(4, 2)
    # The first batch differs between ranks; the second begins with the numbers of one.
    model(rows + hvd.rank())
    model(rows)
    expected(rows + (0 if shares else hvd.rank()))
    expected(rows)
    assert_same(normal, expected)
    # Where nothing is trained, ranks may have different numbers of batches: nothing is shared.
    model.eval()
    if hvd.rank() == 0:
        model(torch.ones(1, 2))


def test_buffers_with_uneven_inputs():
    model = sirtaki.data_parallel(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
    with model.join():
        for _ in range(hvd.rank() + 1):
            model(torch.randn(4, 2)).sum().backward()
    assert model.broadcast_buffers


def test_data_parallel():
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(*copy.deepcopy(list(network()))) if hvd.rank() == 0 else nn.Sequential(
        nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )  # fmt: skip
    model = sirtaki.data_parallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches(5):
        optimizer.zero_grad()
        loss(model, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(5))
    assert set(model.state_dict()) == set(network().state_dict())


def test_a_rank_by_itself_does_nothing_but_count(monkeypatch):
    mine_only = [hvd.ProcessSet([rank]) for rank in range(hvd.size())]
    made = (
        [hvd.add_process_set(one) for one in mine_only]
        if hvd.size() > 1
        else [hvd.global_process_set]
    )
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    parallel = sirtaki.data_parallel(model, process_set=made[hvd.rank()])
    if hasattr(torch.Tensor, "_post_accumulate_grad_hooks"):  # Not before PyTorch 2.1.
        hooks = [len(p._post_accumulate_grad_hooks or ()) for p in model.parameters()]
        assert hooks == [1, 0, 0, 0, 0, 0], "only backward passes are counted"
    # Looking for buffers would take longer than a small layer.
    monkeypatch.setattr(model, "buffers", None)
    expected = copy.deepcopy(model)
    inputs = torch.randn(8, 4)
    for one in (parallel, expected):
        one(inputs).sum().backward()
    assert_same(model, expected)
    for parameter, other in zip(model.parameters(), expected.parameters()):
        assert parameter.grad.equal(other.grad)


def test_no_sync():
    model = sirtaki.data_parallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches(3):
        part = mine(batch)
        optimizer.zero_grad()
        with model.no_sync():
            (loss(model, [tensor[: ROWS // 2] for tensor in part]) / 2).backward()
        (loss(model, [tensor[ROWS // 2 :] for tensor in part]) / 2).backward()
        optimizer.step()
    assert_same(model, alone(3))


def test_uneven_inputs():
    model = sirtaki.data_parallel(nn.Linear(2, 1))
    with model.join():
        for _ in range(hvd.rank() + 1):
            model.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
    # The last batch was the last rank's alone.
    if hvd.rank() == hvd.size() - 1:
        torch.testing.assert_close(model.weight.grad, torch.full((1, 2), 1 / hvd.size()))


def test_sparse_gradients():
    for options in ({}, {"sparse_as_dense": True}):
        torch.manual_seed(3)
        model = nn.Embedding(10, 4, sparse=True)
        before = model.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
        model(torch.tensor([0, hvd.rank() + 1])).sum().backward()
        optimizer.step()
        change = before - model.weight.detach()
        torch.testing.assert_close(change[0], torch.ones(4))
        for rank in range(hvd.size()):
            torch.testing.assert_close(change[rank + 1], torch.full((4,), 1 / hvd.size()))


def test_adasum_optimizer():
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("needs a power of two of ranks")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Adasum)
    reference = network()
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    # All ranks have the same data, so their steps are averaged.
    for batch in batches(3):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        plain.zero_grad()
        loss(reference, batch).backward()
        plain.step()
    assert_same(model, reference)


def test_sync_batch_norm():
    torch.manual_seed(2)
    whole = torch.randn(sum(range(2, hvd.size() + 2)), 3, 4, dtype=torch.float64)
    sizes = [rank + 2 for rank in range(hvd.size())]
    part = whole.split(sizes)[hvd.rank()].clone().requires_grad_()
    whole.requires_grad_()
    reference, ours = nn.BatchNorm1d(3).double(), hvd.SyncBatchNorm(3).double()
    weight = torch.arange(whole.numel(), dtype=torch.float64).reshape(whole.shape).sin()
    for _ in range(2):
        wanted = reference(whole)
        got = ours(part)
        torch.testing.assert_close(got, wanted.split(sizes)[hvd.rank()])
    (wanted * weight).sum().backward()
    (got * weight.split(sizes)[hvd.rank()]).sum().backward()
    torch.testing.assert_close(part.grad, whole.grad.split(sizes)[hvd.rank()])
    total = hvd.allreduce(ours.weight.grad, op=hvd.Sum)
    torch.testing.assert_close(total, reference.weight.grad)
    torch.testing.assert_close(ours.running_mean, reference.running_mean)
    torch.testing.assert_close(ours.running_var, reference.running_var)
    ours.eval()
    reference.eval()
    torch.testing.assert_close(ours(part), reference(part))
    with pytest.raises(ValueError, match="2D"):
        hvd.SyncBatchNorm(3)(torch.ones(3))
