"""Whole jobs with JAX: peers that die, Ctrl-C, forks, and the end with calls in flight."""

import signal

import pytest
from test_torch_jobs import finished
from test_torch_jobs import start as start  # noqa: PLC0414  a fixture


def test_a_peer_that_dies_is_named(start):
    """Also while XLA's program waits for it, and in every call after that."""
    code, text = finished(
        start(
            """
            import os, signal, jax, jax.numpy as jnp, sirtaki.jax as hvd
            hvd.init()
            program = jax.jit(lambda x: hvd.all_reduce(x, name="last"))
            program(jnp.ones(2)).block_until_ready()
            if hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            for attempt in ("first", "second"):
                try:
                    program(jnp.ones(2)).block_until_ready()
                except Exception as error:
                    print(f"{attempt}:", type(error).__name__, " ".join(str(error).split()))
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code != 0
    for attempt in ("first", "second"):
        [line] = [line for line in text.splitlines() if line.startswith(f"[0] {attempt}: ")]
        assert "RuntimeError" in line and "last" in line and "rank 1" in line, text


@pytest.mark.parametrize("size", [2, 100_000], ids=["in this thread", "in XLA's threads"])
def test_an_interrupt_ends_a_wait(start, size):
    """Also of a program so small that XLA runs it in the thread that calls it."""
    process = start(
        f"""
        import jax, jax.numpy as jnp, sirtaki.jax as hvd
        hvd.init()
        program = jax.jit(lambda x: hvd.all_reduce(x + 1, name=f"of {{hvd.rank()}}"))
        print("waiting", flush=True)
        program(jnp.ones({size})).block_until_ready()
        """,
        JAX_PLATFORMS="cpu",
    )
    seen = [process.stdout.readline(), process.stdout.readline()]
    assert all("waiting" in line for line in seen), seen
    process.send_signal(signal.SIGINT)
    code, text = finished(process)
    assert code == 130, text


def test_a_forked_process_is_no_rank(start):
    code, text = finished(
        start(
            """
            import os, jax, jax.numpy as jnp, sirtaki.jax as hvd
            hvd.init()
            program = jax.jit(lambda x: hvd.all_reduce(x, name="both"))
            ones = jnp.ones(2)
            program(ones).block_until_ready()
            child = os.fork()
            if child == 0:
                try:
                    hvd.rank()
                except hvd.Error as error:
                    print("child:", error, flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            print("parent:", program(ones)[0].item(), flush=True)
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code == 0, text
    for rank in (0, 1):
        assert f"[{rank}] child: process" in text and "is not one itself" in text, text
        assert f"[{rank}] parent: 1.0" in text, text


def test_the_end_with_calls_in_flight(start):
    """Rank 0 leaves while XLA waits for a collective that rank 1 never asks for."""
    code, text = finished(
        start(
            """
            import jax, jax.numpy as jnp, sirtaki.jax as hvd
            hvd.init()
            if hvd.rank() == 0:
                # Large enough for XLA not to run it in this thread.
                program = jax.jit(lambda x: hvd.all_reduce(jnp.sin(x), name="alone") + 1)
                pending = program(jnp.ones(100_000))
            hvd.barrier()
            print("leaving", flush=True)
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code == 0, text
    assert "[0] leaving" in text and "[1] leaving" in text, text


def test_a_rank_that_looks_at_no_result_stays_until_it_is_there(start):
    """Its programs run in XLA's threads, and other ranks need what these submit."""
    code, text = finished(
        start(
            """
            import jax, jax.numpy as jnp, sirtaki.jax as hvd
            hvd.init()

            @jax.jit
            def program(x):
                return hvd.all_reduce(jnp.linalg.matrix_power(x, 5))

            result = jnp.eye(200)
            for _ in range(20):
                result = program(result)
            if hvd.rank() == 0:
                print("trace:", jnp.trace(result).item(), flush=True)
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code == 0 and "[0] trace: 200.0" in text, text


def test_a_job_can_be_left_and_joined_again(start):
    """Programs that were compiled before find the new engine; in between they say why not."""
    code, text = finished(
        start(
            """
            import jax, jax.numpy as jnp, sirtaki.jax as hvd
            program = jax.jit(lambda x: hvd.all_reduce(x, op=hvd.Sum, name="again"))
            for attempt in range(2):
                hvd.init()
                print("sum:", program(jnp.float32(1)).item(), flush=True)
                hvd.shutdown()
                try:
                    program(jnp.float32(1)).block_until_ready()
                except Exception as error:
                    assert "this process is in no job" in str(error), error
                    print("refused", flush=True)
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code == 0, text
    assert text.count("sum: 2.0") == 4 and text.count("refused") == 4, text


def test_devices_of_a_process_do_not_call_for_themselves(start):
    code, text = finished(
        start(
            """
            import jax, jax.numpy as jnp, numpy, sirtaki.jax as hvd
            hvd.init()
            mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("x",))
            spec = jax.sharding.PartitionSpec("x")
            mapped = jax.shard_map(hvd.all_reduce, mesh=mesh, in_specs=spec, out_specs=spec)
            try:
                mapped(jnp.ones(4))
            except ValueError as error:
                print("refused:", error)
            """,
            ranks=1,
            JAX_PLATFORMS="cpu",
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
        )
    )
    assert code == 0 and "would be called by each of 2 devices" in text, text


def test_one_rank_traces_for_itself(start):
    """Looking at a program on one rank does not change the names of its collectives."""
    code, text = finished(
        start(
            """
            import jax, jax.numpy as jnp, sirtaki.jax as hvd
            hvd.init()

            def program(x):
                return hvd.all_reduce(x, op=hvd.Sum) * hvd.all_reduce(x, op=hvd.Max)

            if hvd.rank() == 0:
                assert "ffi_call" in str(jax.make_jaxpr(program)(1.0))
            print("product:", jax.jit(program)(3.0).item(), flush=True)
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code == 0 and text.count("product: 18.0") == 2, text


def test_programs_from_before_count_when_ranks_have_joined_again(start):
    """Rank 0 waits for one thing while its program computes what rank 1 waits for."""
    code, text = finished(
        start(
            """
            import jax, jax.numpy as jnp, numpy, sirtaki.jax as hvd, sirtaki.numpy as plain

            @jax.jit
            def program(x, turns):
                # Longer than the engine takes to find out that ranks wait for each other.
                y = jax.lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ y), jnp.ones((700, 700)))
                return hvd.all_reduce(x + 0 * y[0, 0], name="late", op=hvd.Sum)

            ones = jnp.ones(100_000)
            hvd.init()
            program(ones, 1).block_until_ready()
            hvd.shutdown()
            hvd.init()
            if hvd.rank() == 0:
                result = program(ones, 400)
            else:
                result = plain.allreduce(numpy.ones(100_000, "float32"), name="late", op=hvd.Sum)
            plain.allreduce(numpy.ones(1), name="other")
            print("sum:", float(result[0]), flush=True)
            """,
            JAX_PLATFORMS="cpu",
        )
    )
    assert code == 0 and text.count("sum: 2.0") == 2, text
