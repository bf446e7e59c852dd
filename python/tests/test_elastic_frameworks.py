"""Frameworks in jobs whose workers come and go: whatever was made for one number follows it."""

import re
from pathlib import Path

import pytest
from test_elastic_jobs import start as start  # noqa: PLC0414  a fixture

PROGRAMS = Path(__file__).parent / "programs"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


@pytest.fixture
def alone(start, tmp_path):
    """Runs a program that begins with one worker; others come once it has made some steps."""

    def alone(program, most, plan, cooldown="900,900"):
        slots, script = tmp_path / "slots", tmp_path / "discover.sh"
        slots.write_text("localhost:1\n")
        script.write_text(f"#!/bin/sh\ncat {slots}\n")
        script.chmod(0o755)
        options = ["--min-ranks", "1", "--max-ranks", str(most), "--cooldown", cooldown]
        options += ["--discover", str(script)]
        run = start(options, PROGRAMS / program, PLAN=plan, **QUIET)
        run.says(r"^\[\d\] been 1$")
        slots.write_text(f"localhost:{most}\n")
        return run.ends()

    return alone


def check(code, text, killed, left):
    """A newcomer that is there too soon has others killed once more."""
    assert code == 0, text
    assert len(re.findall(r"lost \(was killed by SIGKILL\)", text)) >= killed, text
    assert text.count("all well") == left, text


def test_torch_that_was_alone_trains_with_others(alone):
    check(*alone("elastic_torch.py", 2, "1 2 1 2", "0.1,0.5"), killed=1, left=2)


def test_functions_of_tensorflow_follow_the_number_of_workers(alone):
    check(*alone("elastic_tensorflow.py", 3, "1 3 2 1"), killed=2, left=1)


def test_programs_of_jax_follow_the_number_of_workers(alone):
    check(*alone("elastic_jax.py", 2, "1 2 1"), killed=1, left=1)


# On PyTorch nothing is traced, and what it has in common with the others is tested here.
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_fit_goes_on_and_newcomers_get_everything(start, backend):
    options = ["--min-ranks", "1", "--max-ranks", "2"]
    variables = {"PLAN": "2 1 2", "KERAS_BACKEND": backend, **QUIET}
    run = start(options, PROGRAMS / "elastic_keras.py", **variables)
    check(*run.ends(), killed=1, left=2)
