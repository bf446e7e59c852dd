"""Gradients of collectives, which are collectives: the same rules as for PyTorch."""

import jax
import jax.numpy as jnp
import numpy
import pytest

import sirtaki.jax as hvd

WAYS = [lambda function: function, jax.jit]


@pytest.fixture(params=WAYS, ids=["outside", "jit"])
def way(request):
    return request.param


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_reductions(way, op):
    weight = 1.0 + hvd.rank()
    gradient = way(jax.grad(lambda x: weight * hvd.all_reduce(x * x, op=op).sum()))(
        jnp.array([1.0, 2.0])
    )
    weights = [1.0 + rank for rank in range(hvd.size())]
    total = sum(weights) if op == hvd.Sum else mean(weights)
    numpy.testing.assert_allclose(gradient, [2 * total, 4 * total], rtol=1e-6)


def test_factors(way):
    gradient = way(
        jax.grad(lambda x: hvd.all_reduce(x, prescale_factor=2.0, postscale_factor=3.0))
    )(1.0)
    assert gradient == pytest.approx(6.0)


def test_gathers(way):
    own = jnp.ones((2, 2))
    weights = jnp.arange(2.0 * hvd.size())[:, None] * (1.0 + hvd.rank())
    gradient = way(jax.grad(lambda x: (weights * hvd.all_gather(x)).sum()))(own)
    factor = mean([1.0 + rank for rank in range(hvd.size())])
    rows = numpy.arange(2 * hvd.rank(), 2 * hvd.rank() + 2)
    numpy.testing.assert_allclose(gradient, rows[:, None] * [factor, factor], rtol=1e-6)


def test_broadcasts(way):
    root = hvd.size() - 1
    weight = 1.0 + hvd.rank()
    gradient = way(jax.grad(lambda x: weight * hvd.broadcast(x, root).sum()))(jnp.ones(2))
    expected = mean([1.0 + rank for rank in range(hvd.size())]) if hvd.rank() == root else 0.0
    numpy.testing.assert_allclose(gradient, [expected] * 2)


@pytest.mark.parametrize("extra", [0, 1])
def test_shares(way, extra):
    rows = 2 * hvd.size() + extra
    weight = 1.0 + hvd.rank()
    gradient = way(jax.grad(lambda x: weight * hvd.reduce_scatter(x, op=hvd.Average).sum()))(
        jnp.ones(rows)
    )
    parts = numpy.array_split(numpy.ones(rows), hvd.size())
    expected = numpy.concatenate([part * (1.0 + rank) for rank, part in enumerate(parts)])
    numpy.testing.assert_allclose(gradient, expected)


def test_exchanges(way):
    weight = 1.0 + hvd.rank()
    gradient = way(jax.grad(lambda x: weight * hvd.all_to_all(x).sum()))(jnp.ones(hvd.size()))
    numpy.testing.assert_allclose(gradient, [1.0 + rank for rank in range(hvd.size())])


def test_gradients_of_gradients(way):
    cube = lambda x: hvd.all_reduce(x**3)  # noqa: E731
    assert way(jax.grad(jax.grad(cube)))(2.0) == pytest.approx(12.0)


def test_gradients_of_batches(way):
    gradients = way(jax.vmap(jax.grad(lambda x: hvd.all_reduce(x * x).sum())))(
        jnp.arange(6.0).reshape(3, 2)
    )
    numpy.testing.assert_allclose(gradients, 2 * numpy.arange(6.0).reshape(3, 2))


def test_integers_have_none(way):
    def function(weight, count):
        tree = hvd.all_reduce_tree({"weight": weight, "count": count}, op=hvd.Sum)
        return tree["weight"] * tree["count"]

    gradient = way(jax.grad(function))(jnp.float32(1.0), jnp.int32(2))
    assert gradient.item() == pytest.approx(2.0 * hvd.size() ** 2)


def test_some_reductions_have_none(way):
    with pytest.raises(NotImplementedError, match="`max` has no gradient"):
        way(jax.grad(lambda x: hvd.all_reduce(x, op=hvd.Max)))(1.0)
