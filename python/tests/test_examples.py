"""The examples, as users run them: on two ranks they learn what one process learns."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from sirtaki._launcher import find_command

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
# Steps see the same images however many workers share them, and have the same rate.
ALONE = ["--batch-size", "64", "--lr", "0.005"]
SHARED = ["--batch-size", "32", "--lr", "0.0025"]
# Those for PyTorch also drop a part of what they have computed, unless told not to.
STEADY = ["--dropout", "0"]


def run(ranks, options, script, *arguments):
    command = [find_command(), "run", "-n", str(ranks), *options, "--", sys.executable]
    command += [str(EXAMPLES / script), "--steps", "40", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(text) for text in re.findall(r"step \d+ loss (\S+)", done.stdout)]
    (accuracy,) = re.findall(r"test accuracy (\S+)", done.stdout)
    return losses, float(accuracy)


@pytest.mark.parametrize(
    ("script", "options", "arguments"),
    [
        ("horovod_mnist.py", ["--horovod"], STEADY),
        ("ddp_mnist.py", [], STEADY),
        ("data_parallel_mnist.py", [], STEADY),
        ("tensorflow_mnist.py", ["--horovod"], STEADY),
        ("jax_mnist.py", [], []),
        ("flax_mnist.py", [], []),
        ("keras_mnist.py", ["--env", "KERAS_BACKEND=torch"], STEADY),
    ],
)
def test_two_workers_learn_what_one_does(script, options, arguments):
    losses, accuracy = run(1, options, script, *arguments, *ALONE)
    together, accuracy_together = run(2, options, script, *arguments, *SHARED)
    assert len(losses) == 4 and losses[-1] < 0.7 * losses[0]
    assert together == pytest.approx(losses, rel=1e-3)
    assert accuracy > 0.5 and accuracy_together == pytest.approx(accuracy, abs=2e-3)
