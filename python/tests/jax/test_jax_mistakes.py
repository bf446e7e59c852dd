"""Mistakes get errors that say what is wrong and what to do; no rank waits for ever."""

import jax
import jax.numpy as jnp
import numpy
import pytest

import sirtaki.jax as hvd


def test_shapes_that_differ(several):
    """XLA's error has the engine's words, and the engine can still be used."""
    with pytest.raises(Exception, match=r"ranks disagree.*shape") as raised:
        jax.jit(lambda x: hvd.all_reduce(x, name="differs"))(
            jnp.ones(2 + hvd.rank())
        ).block_until_ready()
    assert "differs" in str(raised.value)
    assert hvd.all_reduce(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_types_that_differ(several):
    dtype = "int32" if hvd.rank() else "float32"
    with pytest.raises(Exception, match="ranks disagree"):
        hvd.all_reduce(jnp.ones(2, dtype), name="types").block_until_ready()


def test_rows_that_differ_inside_jit(several):
    with pytest.raises(Exception, match="rows"):
        jax.jit(lambda x: hvd.all_gather(x, name="rows"))(
            jnp.ones(2 + hvd.rank())
        ).block_until_ready()
    hvd.barrier()


def test_types_without_arithmetic():
    with pytest.raises(ValueError, match="arrays of uint32 cannot be reduced\nhint: convert"):
        hvd.all_reduce(jnp.ones(2, "uint32"))
    with pytest.raises(ValueError, match="complex64"):
        jax.jit(hvd.reduce_scatter)(jnp.ones(2, "complex64"))


def test_arguments():
    with pytest.raises(ValueError, match="there is no reduction 77"):
        hvd.all_reduce(jnp.ones(1), op=77)
    with pytest.raises(NotImplementedError, match="only the reductions Average and Sum"):
        hvd.reduce_scatter(jnp.ones(1), op=hvd.Max)
    with pytest.raises(ValueError, match="a number has no rows"):
        hvd.reduce_scatter(1.0)
    with pytest.raises(ValueError, match="are more than the tensor's 1 rows"):
        hvd.all_to_all(jnp.ones(1), [2] * hvd.size())
    with pytest.raises(ValueError, match="hint: give received"):
        jax.jit(lambda x: hvd.all_to_all(x, [1] * hvd.size()))(jnp.ones(hvd.size()))
    with pytest.raises(ValueError, match="numbers in received"):
        hvd.all_to_all(jnp.ones(hvd.size()), [1] * hvd.size(), received=[1] * (hvd.size() + 1))
    with pytest.raises(ValueError, match="cannot travel as an array\nhint: send it with"):
        hvd.broadcast_parameters({"name": object()})
    with pytest.raises(ValueError, match="not an optimizer of optax's"):
        hvd.DistributedOptimizer(3)
    with pytest.raises(ValueError, match="a function of parameters and data, not a int"):
        hvd.data_parallel(3)
    with pytest.raises(ValueError, match="argument 0 has to hold the parameters"):
        hvd.data_parallel(lambda: 0)()


def test_sets_that_were_removed(several):
    members = [0, hvd.size() - 1] if hvd.size() > 2 else [1]
    chosen = hvd.add_process_set(members)
    program = jax.jit(lambda x: hvd.all_reduce(x, name="removed", process_set=chosen))
    if chosen.included():
        assert program(jnp.float32(2)).item() == 2.0
    hvd.remove_process_set(chosen)
    if hvd.rank() in members:
        with pytest.raises(Exception, match="has no process set"):
            program(jnp.float32(2)).block_until_ready()
    with pytest.raises(ValueError, match="was not added, or it was removed"):
        hvd.all_reduce(jnp.ones(1), process_set=chosen)


def test_memory_is_left_alone_after_an_error(several):
    """Arrays of a call that failed go back to XLA, which uses their memory again."""
    for attempt in range(3):
        with pytest.raises(Exception, match="ranks disagree"):
            jax.jit(lambda x: hvd.all_reduce_tree([x, x[: 10 + hvd.rank()]], name="half"))(
                jnp.ones(50_000) * attempt
            )[0].block_until_ready()
        numpy.testing.assert_allclose(jnp.arange(50_000.0) * 2, numpy.arange(50_000.0) * 2)
    hvd.barrier()
