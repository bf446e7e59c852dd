"""Whole jobs with TensorFlow: peers that die, orders, forks, Ctrl-C, the end of the program."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from sirtaki._launcher import find_command

LIMIT = 300
"""Seconds; importing TensorFlow alone takes many on a busy machine."""


@pytest.fixture
def start(tmp_path):
    """Starts a script on ranks; whatever a test leaves is ended."""
    started = []

    def start(script, ranks=2, options=(), threads=2):
        file = tmp_path / "script.py"
        begin = f"""
        import os, signal, tensorflow as tf, sirtaki.tensorflow as hvd
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads({threads})
        hvd.init()
        """
        file.write_text(textwrap.dedent(begin) + textwrap.dedent(script))
        command = [find_command(), "run", "-n", str(ranks), *options, "--", sys.executable]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        started.append(
            subprocess.Popen(
                [*command, str(file)],
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def finished(process):
    text, _ = process.communicate(timeout=LIMIT)
    return process.returncode, text


@pytest.mark.parametrize("wrap", ["eager", "function", "session"])
def test_a_peer_that_dies_is_named(start, wrap):
    code, text = finished(
        start(f"""
        def last():
            return hvd.allreduce(tf.ones([2]), name="last")
        def in_session():
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                return session.run(last())
        call = {dict(session="in_session", function="tf.function(last)").get(wrap, "last")}
        hvd.barrier()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            call()
        except tf.errors.UnknownError as error:
            assert "rank 1" in error.message and "last" in error.message, error
            print("noticed:", error.message.splitlines()[0])
        """)
    )
    assert code != 0
    assert "[0] noticed:" in text and "SIGKILL" in text, text


@pytest.mark.parametrize("wrap", ["", "tf.function"])
def test_ranks_that_disagree_and_ranks_that_wait_for_ever(start, wrap):
    code, text = finished(
        start(f"""
        @{wrap or "(lambda f: f)"}
        def sizes():
            return hvd.allreduce(tf.ones([2 + hvd.rank()]), name="sizes")
        @{wrap or "(lambda f: f)"}
        def names():
            return hvd.allreduce(tf.ones([2]), name=f"only.{{hvd.rank()}}")
        try:
            sizes()
        except tf.errors.FailedPreconditionError as error:
            print("disagree:", "sizes" in error.message and "ranks disagree" in error.message)
        print(float(hvd.allreduce(tf.constant(1.0))))
        try:
            names()
        except tf.errors.FailedPreconditionError as error:
            print("waited:", "only.0" in error.message and "only.1" in error.message)
        """)
    )
    assert code == 0, text
    for rank in (0, 1):
        for line in ("disagree: True", "1.0", "waited: True"):
            assert f"[{rank}] {line}" in text, text


@pytest.mark.parametrize("threads", [1, 2])
def test_opposite_orders(start, threads):
    """A hundred tensors, submitted in opposite orders, and several groups in flight."""
    code, text = finished(
        start(
            """
        variables = [tf.Variable(tf.fill([10], float(n)), name=f"v{n}") for n in range(100)]
        order = variables[::-1] if hvd.rank() else variables
        @tf.function(autograph=False)
        def step(groups):
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, groups=groups)
            return tf.add_n(tape.gradient(loss, order))
        for _ in range(5):
            total = step(None).numpy()
            assert (total == sum(2 * 2 * n for n in range(100))).all(), total
        # With groups the lists have to be the same on all ranks.
        order = variables
        assert (step(10).numpy() == total).all()
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            numbers = range(50)[::-1] if hvd.rank() else range(50)
            reduced = [hvd.allreduce(tf.fill([3], 1.0), name=f"n{n}", op=hvd.Sum) for n in numbers]
            assert (session.run(tf.add_n(reduced)) == 100).all()
        print("done")
        """,
            threads=threads,
        )
    )
    assert code == 0 and "[0] done" in text and "[1] done" in text, text


def test_compilation_is_refused_with_a_hint(start):
    code, text = finished(
        start(
            """
        try:
            tf.function(lambda x: hvd.allreduce(x), jit_compile=True)(tf.ones([2]))
        except ValueError as error:
            print("refused:", "hint:" in str(error) and "jit_compile" in str(error))
        """,
            ranks=1,
        )
    )
    assert code == 0 and "refused: True" in text, text


def test_a_forked_process_is_not_a_rank(start):
    code, text = finished(
        start(
            """
        hvd.allreduce(tf.ones([2]))
        child = os.fork()
        if child == 0:
            try:
                hvd.allreduce(tf.ones([2]))
            except Exception as error:
                os._exit(7 if "forked" in str(error) else 8)
            os._exit(9)
        print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        hvd.barrier()
        """
        )
    )
    assert code == 0 and "[0] child: 7" in text and "[1] child: 7" in text, text


@pytest.mark.parametrize("wrap", ["(lambda f: f)", "tf.function"])
def test_the_program_may_end_while_something_is_in_flight(start, wrap):
    """Rank 0 waits in a thread for what rank 1 never submits; both come to their end."""
    code, text = finished(
        start(f"""
        import threading
        @{wrap}
        def lonely():
            return hvd.allreduce(tf.ones([2]), name="lonely")
        def wait():
            started.set()
            try:
                lonely()
            except Exception as error:
                print("ended:", type(error).__name__, flush=True)
        started = threading.Event()
        if hvd.rank() == 0:
            waiting = threading.Thread(target=wait)
            waiting.start()
            started.wait()
        hvd.allreduce(tf.ones([2]), name="both")
        hvd.shutdown()
        print("left", flush=True)
        """)
    )
    assert "[0] left" in text and "[1] left" in text and "[0] ended:" in text, text
    assert code == 0, text


def test_control_c_ends_a_wait(start):
    process = start("""
    if hvd.rank() == 1:
        import time
        print("alone", flush=True)
        time.sleep(1000)
    try:
        print("waiting", flush=True)
        hvd.allreduce(tf.ones([2]), name="never")
    finally:
        print("left the wait", flush=True)
    """)
    lines, wanted = [], {"[0] waiting", "[1] alone"}
    for line in process.stdout:
        lines.append(line)
        wanted.discard(line.strip())
        if not wanted:
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=LIMIT)
    assert process.returncode not in (0, None), lines
    assert "[0] left the wait" in rest, "".join(lines) + rest


def test_hooks_of_sessions_and_elastic_state(start):
    code, text = finished(
        start("""
        tf.compat.v1.disable_eager_execution()
        with tf.Graph().as_default():
            weight = tf.compat.v1.get_variable("w", initializer=float(hvd.rank() + 5))
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
            train = hvd.DistributedOptimizer(optimizer).minimize(weight * (hvd.rank() + 1), step)
            hooks = [
                hvd.BroadcastGlobalVariablesHook(0),
                tf.compat.v1.train.StopAtStepHook(last_step=3),
            ]
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                while not session.should_stop():
                    _, value = session.run([train, weight])
        print("ended", hvd.allgather_object(round(float(value), 4)))
        """)
    )
    ended = [line for line in text.splitlines() if "ended" in line]
    assert code == 0 and len(ended) == 2, text
    values = eval(ended[0].split("ended ")[1])
    assert values[0] == values[1] < 5, text
