"""Training on several ranks ends with the weights that one process reaches on all the data."""

import jax
import jax.numpy as jnp
import numpy
import optax
import pytest

import sirtaki.jax as hvd

STEPS, BATCH = 12, 8


def data():
    generator = numpy.random.default_rng(5)
    inputs = generator.normal(size=(STEPS, BATCH, 6)).astype(numpy.float32)
    return inputs, numpy.sin(inputs.sum(2, keepdims=True))


def start():
    first, second = jax.random.split(jax.random.key(3))
    return {
        "first": {"weights": jax.random.normal(first, (6, 16)) * 0.3, "bias": jnp.zeros(16)},
        "second": {"weights": jax.random.normal(second, (16, 1)) * 0.3, "bias": jnp.zeros(1)},
    }


def loss(parameters, inputs, labels):
    first, second = parameters["first"], parameters["second"]
    hidden = jnp.tanh(inputs @ first["weights"] + first["bias"])
    return jnp.mean((hidden @ second["weights"] + second["bias"] - labels) ** 2)


def trained(step, parameters, state, share):
    losses = []
    for inputs, labels in zip(*data()):
        parameters, state, value = step(parameters, state, share(inputs), share(labels))
        losses.append(value)
    return parameters, losses


def alone():
    optimizer = optax.adam(0.02)

    @jax.jit
    def step(parameters, state, inputs, labels):
        value, gradients = jax.value_and_grad(loss)(parameters, inputs, labels)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return trained(step, start(), optimizer.init(start()), lambda rows: rows)


def mine(rows):
    return rows[hvd.rank() :: hvd.size()]


def by_value_and_grad(optimizer):
    def step(parameters, state, inputs, labels):
        value, gradients = hvd.value_and_grad(loss)(parameters, inputs, labels)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return step, optimizer


def by_optimizer(optimizer):
    optimizer = hvd.DistributedOptimizer(optimizer)

    def step(parameters, state, inputs, labels):
        value, gradients = jax.value_and_grad(loss)(parameters, inputs, labels)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, hvd.all_reduce(value)

    return step, optimizer


def by_data_parallel(optimizer):
    parallel = hvd.data_parallel(loss)

    def step(parameters, state, inputs, labels):
        value, gradients = jax.value_and_grad(parallel)(parameters, inputs, labels)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, hvd.all_reduce(value)

    return step, optimizer


@pytest.mark.parametrize("way", [by_value_and_grad, by_optimizer, by_data_parallel])
@pytest.mark.parametrize("jit", [True, False])
def test_the_same_weights_as_one_process(way, jit):
    expected, losses = alone()
    step, optimizer = way(optax.adam(0.02))
    ours = jax.tree.map(lambda leaf: leaf + hvd.rank(), start())
    ours = hvd.broadcast_parameters(ours, root_rank=0)
    step = jax.jit(step, donate_argnums=(0, 1)) if jit else step
    weights, together = trained(step, ours, optimizer.init(ours), mine)
    numpy.testing.assert_allclose(together, losses, rtol=2e-4)
    jax.tree.map(
        lambda a, b: numpy.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5), weights, expected
    )
    bits = jax.tree.map(lambda leaf: numpy.asarray(leaf).tobytes(), weights)
    assert all(other == bits for other in hvd.allgather_object(bits)), "the same bits everywhere"


def test_gradients_are_collected_before_they_travel():
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=2)
    weights = jnp.zeros(2)
    state = optimizer.init(weights)
    update = jax.jit(optimizer.update)
    for gradient, expected in [(1.0, 0.0), (3.0, -2.0)]:
        updates, state = update(jnp.full(2, gradient), state, weights)
        weights = optax.apply_updates(weights, updates)
        assert weights.tolist() == [expected] * 2


def test_what_else_a_function_returns_stays_local():
    def function(x):
        return x * (1.0 + hvd.rank()), {"rank": hvd.rank()}

    (value, aux), gradient = hvd.value_and_grad(function, has_aux=True)(jnp.float32(2.0))
    mean = sum(1.0 + rank for rank in range(hvd.size())) / hvd.size()
    assert (value.item(), gradient.item()) == pytest.approx((2 * mean, mean))
    assert aux == {"rank": hvd.rank()}


def test_states_and_keys_are_broadcast():
    state = optax.adam(0.1).init(start())
    key = jax.random.key(hvd.rank())
    tree = {"state": state, "key": key, "step": hvd.rank(), "old": jax.random.PRNGKey(hvd.rank())}
    root = hvd.size() - 1
    result = hvd.broadcast_parameters(tree, root)
    assert (
        jax.random.key_data(result["key"]).tolist()
        == jax.random.key_data(jax.random.key(root)).tolist()
    )
    assert result["step"].item() == root
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    assert hvd.broadcast_parameters({}) == {}


def test_process_sets(even):
    if not even.included():
        return
    gradients = jax.jit(hvd.value_and_grad(lambda x: x * hvd.rank(), process_set=even))(1.0)[1]
    assert gradients.item() == pytest.approx(sum(even.ranks) / len(even.ranks))


def test_an_optimizer_may_be_given_to_data_parallel():
    optimizer = hvd.data_parallel(optax.sgd(1.0))
    updates, _ = optimizer.update(jnp.float32(hvd.rank()), optimizer.init(jnp.float32(0)))
    assert updates.item() == pytest.approx(-sum(range(hvd.size())) / hvd.size())
