"""Training that goes on after a failure, on the same ranks."""

import importlib

import pytest
import torch

import sirtaki
import sirtaki.torch as hvd


def make(optimizer=torch.optim.SGD, **options):
    torch.manual_seed(hvd.rank())  # Synchronizing has to make them equal.
    model = torch.nn.Linear(3, 1)
    inner = optimizer(model.parameters(), **options)
    return model, hvd.DistributedOptimizer(inner, model.named_parameters())


def train(state, until, fail_at=None, failures=None):
    """Commits every second step; the last rank fails once, and the others learn of it."""
    while state.batch < until:
        if state.batch == fail_at and not failures:
            failures.append(state.batch)
            if hvd.rank() == hvd.size() - 1:
                raise hvd.HorovodInternalError("as if a collective had failed")
        state.optimizer.zero_grad()
        inputs = torch.full((2, 3), float(state.batch + hvd.rank()))
        state.model(inputs).square().mean().backward()
        state.optimizer.step()
        state.batch += 1
        if state.batch % 2 == 0:
            state.commit()
    return state.model.weight.detach().clone()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_failure_leads_back_to_the_last_commit(optimizer):
    runs = []
    for fail_at in (None, 5):
        model, wrapped = make(optimizer, lr=0.01)
        state, failures, resets = hvd.elastic.TorchState(model, wrapped, batch=0), [], []
        state.register_reset_callbacks([lambda to=resets, of=state: to.append(of.batch)])
        runs.append(hvd.elastic.run(train)(state, 8, fail_at, failures))
        assert state.batch == 8
        assert resets == ([] if fail_at is None else [4])
    # As if nothing had happened, and the same everywhere.
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=0)
    gathered = hvd.allgather(runs[1])
    assert gathered.eq(gathered[0]).all()


def test_what_adasum_has_in_flight_does_not_change_what_was_restored():
    model = torch.nn.Linear(3, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), op=hvd.Adasum)
    state = hvd.elastic.TorchState(model, optimizer)
    before = model.weight.detach().clone()
    model(torch.ones(2, 3)).sum().backward()
    state.restore()
    assert torch.equal(model.weight.detach(), before)


def test_a_backward_pass_that_failed_at_its_end_can_be_repeated(several, monkeypatch):
    model = sirtaki.data_parallel(torch.nn.Linear(3, 1))
    module = importlib.import_module("sirtaki.torch.data_parallel")
    reduce = module.reduce_in_place

    def fail(tensors, name, *args):
        if name == "used":
            raise hvd.HorovodInternalError("as if a rank had been lost")
        return reduce(tensors, name, *args)

    with monkeypatch.context() as patch:
        patch.setattr(module, "reduce_in_place", fail)
        with pytest.raises(RuntimeError, match="as if a rank had been lost"):
            model(torch.ones(2, 3)).sum().backward()
    hvd.shutdown()
    hvd.init()
    model.zero_grad()
    model(torch.full((2, 3), float(hvd.rank()))).sum().backward()
    assert model.weight.grad.eq(hvd.size() - 1).all()


def test_state_is_made_equal_before_the_first_step():
    model, _ = make(lr=0.1)
    state = hvd.elastic.TorchState(model, epoch=hvd.rank() + 3, names=["a"] * hvd.rank())
    seen = hvd.elastic.run(lambda state: (state.epoch, state.names))(state)
    assert seen == (3, [])
    weights = hvd.allgather(model.weight.detach())
    assert weights.eq(weights[0]).all()


def test_failures_without_progress_are_raised():
    calls = []

    @hvd.elastic.run
    def hopeless(state):
        calls.append(state.batch)
        raise hvd.HorovodInternalError("again")

    with pytest.raises(sirtaki.Error, match="again"):
        hopeless(hvd.elastic.TorchState(batch=1))
    assert calls == [1, 1, 1]
    hvd.barrier()


def test_ranks_may_leave_and_join_again():
    from sirtaki._core.elastic import HostsUpdatedInterrupt

    calls = []

    @hvd.elastic.run
    def twice(state):
        calls.append(state.batch)
        if len(calls) == 1:
            state.batch = 7
            raise HostsUpdatedInterrupt(skip_sync=hvd.size() == 1)
        return state.batch

    # Nothing has failed, so nothing is restored.
    assert twice(hvd.elastic.TorchState(batch=0)) == 7 and calls == [0, 7]


def test_other_hosts_are_refused():
    state = hvd.elastic.TorchState(batch=0)
    with pytest.raises(sirtaki.Error, match=r"(?s)cannot change.*hint:"):
        state.on_hosts_updated(0, 2)
    state.check_host_updates()


def test_samplers_go_on_where_they_were():
    data = list(range(10 * hvd.size() + 1))
    sampler = hvd.elastic.ElasticSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
    state = hvd.elastic.TorchState(sampler=sampler)
    seen = []
    for number, batch in enumerate(loader):
        sampler.record_batch(number, len(batch))
        seen += batch.tolist()
        if number == 1:
            state.commit()
        if number == 2:
            break
    state.restore()
    state.sync()
    rest = list(sampler)
    assert len(rest) == len(sampler) == 7
    everything = [one for part in hvd.allgather_object(seen[:4] + rest) for one in part]
    assert set(everything) == set(data)
    assert sum(everything.count(one) > 1 for one in data) == hvd.size() * 11 - len(data)
    sampler.set_epoch(1)
    assert len(sampler) == 11 and list(sampler) != seen
