"""All ways of training with PyTorch, in a job whose workers come and go."""

import torch
import turns

import sirtaki
import sirtaki.torch as hvd
from sirtaki._core import job

INPUTS = 600
"""More than are rounded together, and no multiple of that."""

hvd.init()


def model():
    """Every process begins with weights of its own."""
    made = torch.nn.Linear(INPUTS, 1)
    torch.nn.init.constant_(made.weight, 10.0 * job.round_number() + hvd.rank())
    torch.nn.init.constant_(made.bias, 0.0)
    return made


def sgd(of):
    return torch.optim.SGD(of.parameters(), lr=0.25)


def distributed(**options):
    made = model()
    return made, hvd.DistributedOptimizer(sgd(made), made.named_parameters(), **options)


def wrapped(wrap):
    made = wrap(model())
    return made, sgd(made)


def local(**options):
    made = model()
    return made, hvd.LocalSGD(sgd(made), every=1, **options)


trained = {
    "optimizer": distributed(),
    "groups": distributed(groups=1),
    "adasum": distributed(op=hvd.Adasum),
    "data_parallel": wrapped(sirtaki.data_parallel),
    "apex": wrapped(hvd.DistributedDataParallel),
    "local": local(),
    "local_later": local(after=5, wire="int8"),
}
in_two, optimizer_in_two = distributed(backward_passes_per_step=2)
trained["passes"] = in_two, optimizer_in_two

try:
    hvd.ServerOptimizer(model())
except ValueError as error:
    assert "come and go" in str(error) and "hint:" in str(error)
else:
    raise AssertionError("newcomers would wait for the others")


def half_a_step():
    (in_two(torch.ones(1, INPUTS)).sum() * turns.factor() / 2).backward()


@hvd.elastic.run
def train(state):
    turns.begin(state)
    half_a_step()
    while turns.goes_on(state):
        turns.before_step(state)
        for one, optimizer in trained.values():
            if one is in_two:
                half_a_step()
            else:
                optimizer.zero_grad()
                (one(torch.ones(1, INPUTS)).sum() * turns.factor()).backward()
            optimizer.step()
        turns.after_step(state)
        for name, (one, _) in trained.items():
            same = hvd.allgather(
                torch.cat([p.detach().reshape(1, -1) for p in one.parameters()], 1)
            )
            assert torch.equal(same, same[:1].expand_as(same)), (name, state.turns, same)
        # What was begun is forgotten by all when ranks come together.
        optimizer_in_two.zero_grad()
        half_a_step()
        turns.commit(state)


parts = {
    f"{name}_{kind}": part
    for name, both in trained.items()
    for kind, part in zip(("model", "optimizer"), both)
}
state = hvd.elastic.TorchState(**parts, turns=[])
train(state)
for name, (one, _) in trained.items():
    # The gradient is one in every step, and the bias began with zero.
    expected = torch.tensor([-0.25 * turns.steps(state)])
    torch.testing.assert_close(one.bias.detach(), expected, rtol=1e-3, atol=0.05, msg=name)
    torch.testing.assert_close(one.weight.detach()[0, :1] - 10, expected, rtol=1e-3, atol=0.05)
print("all well", flush=True)
