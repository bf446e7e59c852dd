"""Programs that JAX compiles once, in a job whose workers come and go."""

import jax
import jax.numpy as jnp
import turns

import sirtaki.jax as hvd
from sirtaki._core import job
from sirtaki.numpy import elastic

hvd.init()
traced = []


@jax.jit
def step(weight, factor):
    traced.append(hvd.size())
    return weight - 0.25 * hvd.all_reduce(factor)


@jax.jit
def rows(factor):
    return hvd.all_gather(factor)


@elastic.run
def train(state):
    turns.begin(state)
    while turns.goes_on(state):
        turns.before_step(state)
        factor = jnp.float32(turns.factor())
        state.weight = step(state.weight, factor)
        turns.after_step(state)
        # Only from the second number of workers on: this has JAX compile everything again.
        if len(state.turns) > 1:
            assert len(state.turns) > 2 or len(traced) == 1, traced
            found = rows(factor)
            assert found.shape == (hvd.size(),) and float(found.sum()) == hvd.size(), found
        turns.commit(state)


# Every process begins with a value of its own.
state = elastic.ArrayState(weight=jnp.float32(10.0 * job.round_number() + hvd.rank()), turns=[])
train(state)
expected = 10 - 0.25 * turns.steps(state)
assert abs(float(state.weight) - expected) < 0.01, (state.weight, expected)
print("all well", flush=True)
