"""What XLA and JAX do to programs must not change which collectives happen."""

import resource

import jax
import jax.numpy as jnp
import numpy
import pytest

import sirtaki.jax as hvd

SIZES = [16, 20000]
"""XLA runs small programs one step after another, and large ones in several threads."""


def total(values):
    return sum(values[rank] for rank in range(hvd.size()))


def test_equal_calls_are_all_made():
    """Merged into one, they would wait for the calls of ranks that make both."""

    def program(x):
        if hvd.rank() == 0:
            return hvd.all_reduce(x, name="a"), hvd.all_reduce(x, name="b")
        return hvd.all_reduce(x + 1, name="a"), hvd.all_reduce(x + 2, name="b")

    a, b = jax.jit(program)(jnp.zeros(3))
    others = hvd.size() - 1
    numpy.testing.assert_allclose([a[0], b[0]], [others / hvd.size(), 2 * others / hvd.size()])


def test_unused_results_happen(several):
    """One rank drops what the others need."""

    def program(x):
        result = hvd.all_reduce(x, op=hvd.Sum, name="unused")
        return x if hvd.rank() == 0 else result

    result = jax.jit(program)(jnp.ones(2))
    assert result.tolist() == ([1.0, 1.0] if hvd.rank() == 0 else [hvd.size()] * 2)


def test_constants_are_reduced_every_time():
    constant = numpy.float32([hvd.rank(), 1])
    program = jax.jit(lambda: hvd.all_reduce(constant, op=hvd.Sum))
    for _ in range(3):
        assert program().tolist() == [sum(range(hvd.size())), hvd.size()]


@pytest.mark.parametrize(("size", "opposite"), [(16, False), (20000, False), (20000, True)])
def test_many_calls_in_either_order(size, opposite):
    count = 40
    backwards = opposite and hvd.rank() % 2 == 1

    def program(x):
        results = [None] * count
        for index in reversed(range(count)) if backwards else range(count):
            results[index] = hvd.all_reduce(jnp.sin(x + index), name=f"many.{index}")
        return results

    compiled = jax.jit(program)
    for _ in range(3):
        results = compiled(jnp.full(size, 1.0))
    for index, result in enumerate(results):
        numpy.testing.assert_allclose(result, numpy.sin(1.0 + index), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_several_groups_in_flight(size, even):
    def program(x):
        trees = [hvd.all_reduce_tree({"a": x + index, "b": [x * index]}) for index in range(4)]
        if even.included():
            trees.append(hvd.all_reduce_tree({"a": x, "b": [x]}, process_set=even))
        return trees

    results = jax.jit(program)(jnp.full(size, float(hvd.rank())))
    mean = sum(range(hvd.size())) / hvd.size()
    for index, tree in enumerate(results[:4]):
        numpy.testing.assert_allclose(tree["a"], mean + index)
        numpy.testing.assert_allclose(tree["b"][0], mean * index)
    if even.included():
        numpy.testing.assert_allclose(results[4]["a"], sum(even.ranks) / len(even.ranks))


def test_unnamed_calls_on_one_line_are_told_apart():
    def program(x):
        return [hvd.all_reduce(x * index, op=hvd.Sum) for index in range(8)]

    results = jax.jit(program)(jnp.full(20000, 1.0))
    for index, result in enumerate(results):
        numpy.testing.assert_allclose(result, index * hvd.size())


def test_a_rank_may_compile_for_another_shape(several):
    """For example for the last batch, which only it has."""

    @jax.jit
    def program(batch):
        return hvd.all_reduce(batch.sum())

    program(jnp.ones(4))
    size = 3 if hvd.rank() == 0 else 4
    for _ in range(2):
        result = program(jnp.ones(size))
    expected = (3 + 4 * (hvd.size() - 1)) / hvd.size()
    assert result.item() == pytest.approx(expected)


def test_donated_arrays():
    program = jax.jit(lambda x: hvd.all_reduce(x, op=hvd.Sum), donate_argnums=0)
    array = jnp.full((1000,), float(hvd.rank()))
    result = program(array)
    assert array.is_deleted()
    numpy.testing.assert_allclose(result, sum(range(hvd.size())))


def test_loops_and_branches():
    def step(carry, x):
        return hvd.all_reduce(carry + x, op=hvd.Average), hvd.all_gather(x[None])

    carry, gathered = jax.jit(lambda c, xs: jax.lax.scan(step, c, xs))(
        jnp.float32(hvd.rank()), jnp.arange(3.0)
    )
    mean = sum(range(hvd.size())) / hvd.size()
    assert carry.item() == pytest.approx(mean + 3)
    assert gathered.shape == (3, hvd.size())

    branch = jax.jit(lambda x: jax.lax.cond(x[0] > 0, hvd.all_reduce, lambda x: x, x))
    assert branch(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_vmap():
    rows = jnp.arange(6.0).reshape(3, 2) + hvd.rank()
    mean = sum(range(hvd.size())) / hvd.size()
    expected = numpy.arange(6.0).reshape(3, 2) + mean
    numpy.testing.assert_allclose(jax.vmap(hvd.all_reduce)(rows), expected)
    numpy.testing.assert_allclose(jax.jit(jax.vmap(hvd.all_reduce))(rows), expected)
    gathered = jax.vmap(hvd.all_gather)(rows)
    assert gathered.shape == (3, 2 * hvd.size())
    numpy.testing.assert_allclose(gathered[:, :2], numpy.arange(6.0).reshape(3, 2))
    shares = jax.vmap(lambda x: hvd.reduce_scatter(x, op=hvd.Sum))(jnp.ones((3, hvd.size())))
    numpy.testing.assert_allclose(shares, numpy.full((3, 1), hvd.size()))


def test_checkpointed_functions():
    @jax.checkpoint
    def function(x):
        return hvd.all_reduce(jnp.sin(x), op=hvd.Average).sum()

    gradient = jax.jit(jax.grad(function))(jnp.ones(2))
    numpy.testing.assert_allclose(gradient, numpy.cos(1.0), rtol=1e-6)


def test_shard_map_over_the_device_of_a_rank():
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:1]), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    function = shard_map(
        lambda x: hvd.all_reduce(jax.lax.psum(x, "x"), op=hvd.Sum),
        mesh=mesh,
        in_specs=spec,
        out_specs=jax.sharding.PartitionSpec(),
    )
    result = jax.jit(function)(jnp.full(4, float(hvd.rank())))
    numpy.testing.assert_allclose(result, sum(range(hvd.size())))


def test_the_main_thread_may_wait_while_a_program_runs(several):
    """A program that has not reached its collective is no reason to call a rank blocked."""
    program = jax.jit(lambda x: hvd.all_reduce(jnp.linalg.matrix_power(x, 3)[0], name="late"))
    pending = program(jnp.eye(300))
    hvd.barrier()
    assert pending[0].item() == pytest.approx(1.0)


def test_memory_of_a_step_is_kept():
    """What is larger than the heap of a thread is not mapped again in every step."""

    @jax.jit
    def step(array):
        reduced = hvd.all_reduce_tree([array * factor for factor in range(1, 6)])
        return sum(jnp.vdot(one, one) for one in reduced)

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    array = jnp.ones(4 << 20)
    seen = [(step(array).block_until_ready(), faults())[1] for _ in range(12)]
    # The heap grows in some of the first steps.
    pages = 5 * array.nbytes // resource.getpagesize()
    assert seen[-1] - seen[5] < 6 * pages * 3 // 4
