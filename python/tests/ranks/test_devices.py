"""One process on several devices, which are all the CPU here."""

import collections

import pytest
import torch
from learning import batches, loss, mine, network
from test_training import alone, assert_same

import sirtaki.torch as hvd

Pair = collections.namedtuple("Pair", "one other")


def double(module):
    torch.manual_seed(3)
    return module.double()


def several_devices(module, **options):
    return hvd.DataParallel(module, device_ids=[0, 0, 0], **options)


def net():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)]
    return torch.nn.Sequential(*layers).double()


def test_parts_together_are_the_whole():
    model, inputs = net(), torch.randn(7, 4, dtype=torch.float64)
    split = several_devices(model)
    assert isinstance(split, torch.nn.DataParallel)
    assert split.module is model
    assert split.device_ids == [torch.device("cpu")] * 3
    torch.testing.assert_close(split(inputs), model(inputs))
    # PyTorch's own module calls the same tensors by the same names.
    others = torch.nn.DataParallel(net())
    assert others.load_state_dict(split.state_dict()).missing_keys == []
    assert list(split.state_dict()) == list(others.state_dict())


def test_gradients_of_all_parts_are_added():
    for width in (1, 2, 7):
        model, inputs = net(), torch.randn(width, 4, dtype=torch.float64, requires_grad=True)
        several_devices(model)(inputs).square().sum().backward()
        found = [inputs.grad, *(p.grad for p in model.parameters())]
        model, inputs = net(), inputs.detach().requires_grad_()
        model(inputs).square().sum().backward()
        torch.testing.assert_close(found, [inputs.grad, *(p.grad for p in model.parameters())])


def test_several_processes_with_several_devices_each():
    """One optimizer, whose gradients come from all devices of all ranks."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    split = hvd.DataParallel(model, device_ids=["cpu", "cpu"])
    for batch in batches(5):
        optimizer.zero_grad()
        loss(split, mine(batch)).backward()
        optimizer.step()
    assert_same(model, alone(5))


class Containers(torch.nn.Module):
    def forward(self, pair, *, scale, names, missing=None):
        assert isinstance(pair, Pair)
        return {
            "sum": pair.one + pair.other,
            "list": [pair.one * scale, (pair.other,)],
            "pair": Pair(pair.one, missing),
            "mean": pair.one.mean(),
            "names": torch.full((len(pair.one),), len(names)),
        }


def test_tensors_are_found_wherever_they_are():
    pair = Pair(torch.rand(6, 6), torch.rand(6, 6))
    scale = torch.rand(6, 6)
    split = several_devices(Containers())
    with pytest.warns(UserWarning, match="as a vector"):
        found = split(pair, scale=scale, names="abc")
    assert found["sum"].equal(pair.one + pair.other)
    assert found["list"][0].equal(pair.one * scale)
    assert found["list"][1][0].equal(pair.other)
    assert isinstance(found["pair"], Pair)
    assert found["pair"].one.equal(pair.one)
    assert found["pair"].other is None
    torch.testing.assert_close(found["mean"], torch.stack([c.mean() for c in pair.one.chunk(3)]))
    assert found["names"].equal(torch.full((6,), 3))


def test_other_dimensions():
    class Rows(torch.nn.Module):
        def forward(self, values):
            return values.cumsum(0)

    values = torch.rand(4, 6)
    torch.testing.assert_close(several_devices(Rows(), dim=1)(values), values.cumsum(0))


def test_random_numbers_do_not_depend_on_timing():
    split = several_devices(torch.nn.Dropout(0.5))
    inputs, results = torch.ones(30, 50), []
    for _ in range(3):
        torch.manual_seed(7)
        results.append(split(inputs))
    assert all(result.equal(results[0]) for result in results)
    # Every part draws numbers of its own.
    one, other, _ = results[0].chunk(3)
    assert not one.equal(other)


def test_statistics_are_those_of_the_first_part():
    inputs = torch.randn(9, 4) + 5
    split, expected = several_devices(torch.nn.BatchNorm1d(4)), torch.nn.BatchNorm1d(4)
    split(inputs)
    expected(inputs[:3])
    assert split.module.running_mean.equal(expected.running_mean)
    assert split.module.num_batches_tracked == 1


def test_recurrent_layers_and_modes():
    layer = double(torch.nn.LSTM(3, 5, batch_first=True))
    inputs = torch.randn(6, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(several_devices(layer)(inputs)[0], layer(inputs)[0])
    with torch.no_grad():
        assert not several_devices(net())(inputs[:, 0, :1].expand(6, 4)).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert several_devices(net().float())(torch.rand(6, 4)).dtype == torch.bfloat16


def test_mistakes_are_named():
    with pytest.raises(RuntimeError, match="in part 0 on device cpu"):
        several_devices(net())(torch.rand(6, 5, dtype=torch.float64))

    class Text(torch.nn.Module):
        def forward(self, values):
            return f"{values.sum()}"

    with pytest.raises(TypeError, match=r"type str cannot be put together(\n|.)*hint: "):
        several_devices(Text())(torch.rand(6, 5))


def test_without_devices_the_module_is_applied_as_it_is():
    model, inputs = net(), torch.rand(3, 4, dtype=torch.float64)
    assert hvd.DataParallel(model, device_ids=[])(inputs).equal(model(inputs))
    assert hvd.DataParallel(model, device_ids=["cpu"])(inputs).equal(model(inputs))
