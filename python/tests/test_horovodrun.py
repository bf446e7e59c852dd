"""``horovodrun``: Horovod's command line over ``sirtaki run``."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sirtaki import _horovodrun

COMMAND = str(Path(sys.executable).with_name("horovodrun"))


def call(*arguments, **options):
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, check=False, **options
    )


def test_a_script_runs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys
        import horovod.torch as hvd
        hvd.init()
        hvd.allreduce(__import__("torch").ones(1), name="seen")
        fusion = os.environ["HOROVOD_FUSION_THRESHOLD"]
        print("rank", hvd.rank(), "of", hvd.size(), sys.argv[1:], fusion)
        """)
    )
    options = ["-np", "2", "--timeline-filename", "timeline.json", "--fusion-threshold-mb", "2"]
    options += [
        "--timeline-mark-cycles",
        "--gloo",
        "--cycle-time-ms",
        "3.5",
        "--log-level",
        "INFO",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = call(
        *options,
        sys.executable,
        str(script),
        "-np",
        "7",
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    for rank in (0, 1):
        assert f"rank {rank} of 2 ['-np', '7'] 2097152" in text, text
    assert "warning: without effect here: --cycle-time-ms, --log-level, --gloo" in done.stderr
    timeline = json.loads((tmp_path / "timeline.json").read_text())
    names = {event.get("name") for event in timeline}
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START"} <= names, names
    tensors = [event["args"]["name"] for event in timeline if event.get("name") == "process_name"]
    assert "allreduce.seen" in tensors, tensors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-np", "two", "true"], "invalid int value: 'two'"),
        (["-np", "2"], "a command to run is missing"),
        (["--min-np", "3", "--max-np", "2", "true"], "at least 3 and at most 2"),
        (["--reset-limit", "2", "-np", "1", "true"], "--reset-limit is for workers that come"),
        (["--blacklist-cooldown-range", "1", "true"], "invalid float value: 'true'"),
        (["--config-file", "x.yaml", "true"], "--config-file: Horovod's configuration files"),
        (["--no-such-option", "true"], "--no-such-option"),
    ],
)
def test_mistakes(arguments, problem):
    done = call(*arguments)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ") and problem in done.stderr and "hint:" in done.stderr


def test_the_exit_code_is_that_of_the_job():
    assert call("-np", "1", sys.executable, "-c", "raise SystemExit(7)").returncode == 7


def test_what_is_built():
    done = call("--check-build")
    lines = {line.strip() for line in done.stdout.splitlines()}
    assert done.returncode == 0 and {"[X] TensorFlow", "[X] PyTorch", "[ ] MXNet"} <= lines
    assert call("--version").stdout.startswith("sirtaki ")
    assert "--timeline-filename" in call("--help").stdout


def test_options_are_translated():
    given = (
        "-np 4 -H a:2,b:2 -p 2222 -i key --start-timeout 9 --network-interfaces e0,e1 --verbose"
    )
    more = "--output-filename out --no-stall-check --stall-check-shutdown-time-seconds 30 x -v"
    ours = _horovodrun.translated(_horovodrun.parse_args(f"{given} {more}".split()))
    expected = """run --horovod --ranks=4 --hosts=a:2,b:2 --start-timeout=9 --output=out
        --ssh-port=2222 --ssh-identity=key --interface=e0 --verbose
        --env=HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=30.0
        --env=HOROVOD_STALL_CHECK_DISABLE=1 -- x -v"""
    assert ours == expected.split()


def test_options_of_elastic_jobs_are_translated():
    given = "-np 2 --min-np 1 --max-num-proc 4 --host-discovery-script ./hosts --slots-per-host 2"
    more = "--elastic-timeout 60 --reset-limit 3 --blacklist-cooldown-range 1 30.5 python x.py"
    ours = _horovodrun.translated(_horovodrun.parse_args(f"{given} {more}".split()))
    expected = """run --horovod --ranks=2 --min-ranks=1 --max-ranks=4 --discover=./hosts --slots=2
        --elastic-timeout=60.0 --reset-limit=3 --cooldown=1,30.5 -- python x.py"""
    assert ours == expected.split()
