"""Whole jobs as users start them: peers that die, scripts for Horovod, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from sirtaki._launcher import find_command


@pytest.fixture
def start(tmp_path):
    """Starts a script on ranks; whatever a test leaves is ended."""
    started = []

    def start(script, ranks=2, options=(), **variables):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(script))
        command = [
            find_command(),
            "run",
            "-n",
            str(ranks),
            *options,
            "--",
            sys.executable,
            str(file),
        ]
        environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
        started.append(
            subprocess.Popen(
                command,
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
    text, _ = process.communicate(timeout=120)
    return process.returncode, text


def test_a_peer_that_dies_is_named(start):
    code, text = finished(
        start("""
        import os, signal, sirtaki, sirtaki.torch as hvd, torch
        hvd.init()
        hvd.barrier()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            hvd.allreduce(torch.ones(2), name="last")
        except sirtaki.Error as error:
            assert error.rank == 1 and "last" in str(error), error
            print("noticed:", error)
        """)
    )
    assert code != 0
    assert "[0] noticed:" in text and "rank 1" in text and "SIGKILL" in text, text


@pytest.mark.parametrize(
    ("culprit", "how", "handler", "headline"),
    [
        (0, "sys.exit(3)", "none", "exit code 3"),
        (1, "sys.exit(3)", "none", "exit code 3"),
        (1, "sys.exit(3)", "before init", "exit code 3"),
        (0, "sys.exit(3)", "after init", "exit code 3"),
        (0, "raise KeyError('weights')", "before init", "KeyError: 'weights'"),
    ],
)
def test_the_first_rank_that_fails_is_reported(start, culprit, how, handler, headline):
    """Also where exit handlers keep it, as some services do, until the others have ended."""
    code, text = finished(
        start(
            f"""
            import atexit, os, sys, time, torch, sirtaki.torch as sk

            def linger(when):
                if when == {handler!r} and os.environ["RANK"] == "{culprit}":
                    time.sleep(5)
                    raise OSError("an exit handler of no importance")

            atexit.register(linger, "before init")
            sk.init()
            atexit.register(linger, "after init")
            for step in range(10):
                if step == 5 and sk.rank() == {culprit}:
                    {how}
                sk.allreduce(torch.ones(4), name="gradient")
            """
        )
    )
    error = next(line for line in text.splitlines() if line.startswith("error: "))
    assert error.startswith(f"error: rank {culprit} ended with exit code {code}"), text
    assert headline in error, text
    assert code == (3 if "exit" in how else 1)


def test_a_script_for_horovod_runs_as_it_is(start):
    code, text = finished(
        start(
            """
            import horovod.torch as hvd
            from horovod.common.exceptions import HorovodInternalError
            from horovod.torch.mpi_ops import rank, is_homogeneous
            import horovod.torch.compression, torch
            hvd.init()
            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
            optimizer = hvd.DistributedOptimizer(
                optimizer, named_parameters=model.named_parameters(),
                compression=horovod.torch.compression.Compression.fp16)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).sum().backward()
                optimizer.step()
            weights = hvd.allgather(model.weight.detach())
            assert weights.eq(weights[0]).all()
            assert hvd.HorovodInternalError is HorovodInternalError
            print("rank", rank(), "of", hvd.size(), "with", hvd.__name__)
            """,
            options=["--horovod"],
            HOROVOD_FUSION_THRESHOLD="1048576",
            HOROVOD_CYCLE_TIME="5",
        )
    )
    assert code == 0, text
    assert "rank 0 of 2 with sirtaki.torch" in text and "rank 1 of 2 with sirtaki.torch" in text
    assert "HOROVOD_CYCLE_TIME" in text and "HOROVOD_FUSION_THRESHOLD" not in text


def test_a_variable_of_horovods_that_is_wrong(start):
    code, text = finished(
        start("import sirtaki.torch; sirtaki.torch.init()", HOROVOD_FUSION_THRESHOLD="much")
    )
    assert code != 0 and "much" in text and "hint:" in text, text


def test_ctrl_c_ends_a_job_that_waits(start):
    process = start("""
        import sirtaki.torch as hvd, torch
        hvd.init()
        hvd.barrier()
        print("waiting", flush=True)
        if hvd.rank() == 0:
            hvd.allreduce(torch.ones(1))
        else:
            import time
            time.sleep(1000)
    """)
    seen = [process.stdout.readline(), process.stdout.readline()]
    assert all("waiting" in line for line in seen), seen
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, text = finished(process)
    assert code == 130, text
    assert "KeyboardInterrupt" in text and time.monotonic() - begin < 60


def test_an_interrupt_ends_init(start, tmp_path):
    code, text = finished(
        start(
            """
            import os, pathlib, signal, sirtaki.torch as hvd, threading, time
            done = pathlib.Path("done")
            if os.environ["RANK"] == "0":
                threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    hvd.init()
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
                done.touch()
                os._exit(0)
            while not done.exists():
                time.sleep(0.05)
            """
        )
    )
    assert code == 0 and "[0] interrupted" in text, text


def test_variables_of_horovods_are_honoured(start, tmp_path):
    code, text = finished(
        start(
            """
            import sirtaki.torch as hvd, torch
            hvd.init()
            hvd.allreduce(torch.ones(1), name="seen")
            """,
            HOROVOD_TIMELINE="timeline.json",
            HOROVOD_STALL_CHECK_TIME_SECONDS="30",
            HOROVOD_LOG_LEVEL="debug",
            HOROVOD_NCCL_LINK="x",
        )
    )
    assert code == 0, text
    assert "seen" in (tmp_path / "timeline.json").read_text()
    [warning] = [line for line in text.splitlines() if "have no effect" in line]
    assert "HOROVOD_LOG_LEVEL, HOROVOD_NCCL_LINK" in warning and "TIMELINE" not in warning


def test_the_command_is_in_the_wheel():
    version = subprocess.run(
        [find_command(), "--version"], capture_output=True, text=True, check=False
    )
    assert version.returncode == 0 and version.stdout.startswith("sirtaki ")
    wrong = subprocess.run([find_command(), "rum"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "rum" in wrong.stderr
    module = subprocess.run(
        [sys.executable, "-m", "sirtaki", "doctor"], capture_output=True, check=False
    )
    assert module.returncode == 0, module.stderr
    bench = [find_command(), "bench", "allreduce", "-n", "2", "--sizes", "4", "--repeat", "5"]
    done = subprocess.run(bench, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_no_framework():
    code = "import sirtaki, sirtaki._native, sys; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


COURSE = """
    import json, os, sys, time, torch, sirtaki, sirtaki.torch as hvd
    hvd.init()
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    {wrap}
    {say}
    for step in range(20):
        time.sleep(0.02)
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        {each}
"""

DISTRIBUTED = "optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())"


def course(start, tmp_path, ranks=2, wrap=DISTRIBUTED, say="pass", each="pass"):
    """The rows and the settings that a script leaves in the folder of its run."""
    script = COURSE.format(wrap=wrap, say=say, each=each)
    code, text = finished(start(script, ranks, [f"--record={tmp_path / 'run'}"]))
    assert code == 0, text
    rows = (tmp_path / "run/steps.jsonl").read_text().splitlines()
    about = json.loads((tmp_path / "run/run.json").read_text())
    return [json.loads(row) for row in rows], about["settings"]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("wrap", [DISTRIBUTED, "model = sirtaki.data_parallel(model)"])
def test_steps_are_counted_where_a_program_says_nothing(start, tmp_path, ranks, wrap):
    rows, _ = course(start, tmp_path, ranks, wrap)
    steps = [row["step"] for row in rows]
    assert steps[-1] == 20 and steps == sorted(steps), rows
    assert len(steps) < 20, "not every step is worth a word"


def test_a_program_that_speaks_for_itself_is_believed(start, tmp_path):
    rows, settings = course(
        start,
        tmp_path,
        say="sirtaki.describe(lr=0.01, model='linear')",
        each="sirtaki.progress(step + 1, 20, epoch=step / 10, loss=torch.tensor(0.5))",
    )
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert rows[-1]["steps"] == 20 and rows[-1]["loss"] == 0.5 and rows[-1]["epoch"] == 1.9
    assert settings == {"lr": "0.01", "model": "linear"}


def test_memory_of_a_step_is_kept_unless_the_user_tunes_the_allocator(start):
    script = """
    import resource, torch, sirtaki.torch as hvd
    hvd.init()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for step in range(200):
        torch.zeros(2 << 20)
    print("faults:", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    system = {"MALLOC_MMAP_THRESHOLD_": "131072"}
    faults = []
    for variables in ({}, system):
        code, text = finished(start(script, ranks=1, **variables))
        assert code == 0, text
        faults.append(int(text.split("faults:")[1].split()[0]))
    kept, returned = faults
    assert 10 * kept < returned, faults


DIVERGENCES = {
    "another name": "hvd.allreduce(x, name='x' if hvd.rank() else 'y')",
    "another order": "[hvd.allreduce(x, name=name) for name in ('xy', 'yx')[hvd.rank()]]",
    "one skipped": "[hvd.allreduce(x, name=name) for name in ('xy', 'y')[hvd.rank()]]",
    "all submitted first": "[hvd.synchronize(h) for h in map(submit, ('axb', 'ayb')[hvd.rank()])]",
}


@pytest.mark.parametrize("what", DIVERGENCES)
def test_ranks_that_wait_for_each_other_are_told(start, what):
    _, text = finished(
        start(
            f"""
            import torch
            import sirtaki.torch as hvd
            hvd.init()
            x = torch.ones(3)
            submit = lambda name: hvd.allreduce_async(x, name=name)
            hvd.allreduce(x, name="first")
            try:
                {DIVERGENCES[what]}
            except Exception as error:
                print("told:", error, flush=True)
            """
        )
    )
    told = [line for line in text.splitlines() if "told:" in line]
    assert len(told) == 2, text
    for line in told:
        sides = ("they wait for each other", '"allreduce.x"', '"allreduce.y"')
        assert all(side in line for side in sides), text


def test_a_late_rank_says_where_it_is(start):
    code, text = finished(
        start(
            """
            import time, torch
            import sirtaki.torch as hvd

            def evaluate():
                time.sleep(600)

            hvd.init()
            hvd.allreduce(torch.ones(3), name="first")
            if hvd.rank() == 1:
                evaluate()
            hvd.allreduce(torch.ones(3), name="missing")
            """,
            options=("--hang-timeout", "8"),
            SIRTAKI_WARN_AFTER="1",
        )
    )
    assert code != 0, text
    assert "in evaluate (script.py:6) < <module> (script.py:11)" in text, text
    assert "the timeout of 8 s has passed: rank 1 " in text, text
