"""The examples, as users run them: two workers learn what one does, and their reports say so.

Those that have a batch file run as it says. The data is a small part of the digits: most of the
time goes into starting Python.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from sirtaki._launcher import find_command

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "python" / "examples"
PAGES = ROOT / "docs"
LIMIT = 600
STEPS = 40
# Steps see the same images however many workers share them, and have the same rate.
ALONE = ["--batch-size", "64", "--lr", "0.005"]
SHARED = ["--batch-size", "32", "--lr", "0.0025"]
# Those for PyTorch also drop a part of what they have computed, unless told not to.
STEADY = ["--dropout", "0"]
HOROVOD = ["--horovod"]
KERAS = ["--env", "KERAS_BACKEND=torch"]
# One process with two devices instead of two workers.
TWO = ["--devices", "2"]
ONE = ["--devices", "1"]

BATCH = {
    "ddp_mnist": STEADY,
    "horovod_mnist": STEADY,
    "torch_dataparallel_mnist": [*TWO, *STEADY],
    "tensorflow_mnist": STEADY,
    "horovod_keras_mnist": [],
    "mirrored_mnist": TWO,
    "multi_worker_mnist": [],
}
"""The batch files, with options for their scripts."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Variables of a job, with data of as many images as are used."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "mnist").mkdir()
    for part, count in (("train", 2560), ("t10k", 1000)):
        for kind, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            name = f"mnist/{part}-{kind}-ubyte.gz"
            with gzip.open(ROOT / "data" / name) as file:
                start = file.read(header + count * size)
            start = start[:4] + count.to_bytes(4, "big") + start[8:]
            (folder / name).write_bytes(gzip.compress(start, 1))
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "SIRTAKI_DATA_FOLDER": str(folder),
    }


@pytest.fixture(scope="module")
def learn(environment, tmp_path_factory):
    """Runs an example on ranks; the same one only once."""
    runs = tmp_path_factory.mktemp("runs")

    @cache
    def learn(script, ranks, options, arguments):
        folder = runs / str(len(list(runs.iterdir())))
        command = [find_command(), "run", "-n", str(ranks), f"--record={folder}", *options, "--"]
        command += [sys.executable, str(EXAMPLES / script), "--steps", str(STEPS), *arguments]
        done = subprocess.run(
            command, check=False, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return learned(done.stdout, folder)

    return lambda script, ranks, options, *arguments: learn(
        script, ranks, tuple(options), tuple(arguments)
    )


def as_batch(name):
    """The script of a batch file, the number of its ranks, and how it is started."""
    text = (EXAMPLES / f"{name}.sbatch").read_text()
    nodes, tasks = (
        int(re.search(f"^#SBATCH --{option}=(.*)$", text, re.MULTILINE)[1])
        for option in ("nodes", "ntasks-per-node")
    )
    last = text.splitlines()[-1]
    options = re.fullmatch(r'sirtaki run (.*)-- python (\S+) "\$@"', last)
    return options[2], nodes * tasks, options[1].split()


def learned(text, folder):
    """The losses and the accuracy that a run prints, which are those of its reports."""
    losses = [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", text)]
    found = re.findall(r"test accuracy (\S+)", text)
    assert len(found) == 1, text
    accuracy = float(found[0])
    rows = [json.loads(row) for row in (folder / "steps.jsonl").read_text().splitlines()]
    reported = [row["loss"] for row in rows if row.get("loss") is not None]
    assert reported and reported[-1] == pytest.approx(losses[-1], rel=1e-3), rows
    assert rows[-1]["step"] == STEPS
    assert rows[-1]["test_accuracy"] == pytest.approx(accuracy, abs=1e-4)
    settings = json.loads((folder / "run.json").read_text())["settings"]
    assert {"model", "lr", "seed"} <= set(settings), settings
    return losses, accuracy


def same(alone, together):
    losses, accuracy = alone
    losses_together, accuracy_together = together
    assert len(losses) == STEPS // 10 and losses[-1] < 0.8 * losses[0]
    assert losses_together[:-1] == pytest.approx(losses[:-1], rel=2e-3)
    # Sums are rounded differently, and while the loss falls fast, that grows.
    assert losses_together[-1] == pytest.approx(losses[-1], rel=2e-2)
    assert accuracy > 0.5 and accuracy_together == pytest.approx(accuracy, abs=2e-2)


# The scripts for PyTorch have the same network and order, so they learn the same alone.
TORCH = ("ddp_mnist.py", [], STEADY)


@pytest.mark.parametrize(
    ("script", "options", "arguments", "alone"),
    [
        ("data_parallel_mnist.py", [], STEADY, TORCH),
        ("jax_mnist.py", [], [], None),
        ("flax_mnist.py", [], [], None),
        ("keras_mnist.py", KERAS, STEADY, None),
    ],
)
def test_two_workers_learn_what_one_does(learn, script, options, arguments, alone):
    together = learn(script, 2, options, *arguments, *SHARED)
    other, *settings = alone or (script, options, arguments)
    same(learn(other, 1, settings[0], *settings[1], *ALONE), together)


@pytest.mark.parametrize(
    ("name", "script", "options", "arguments"),
    [
        ("ddp_mnist", *TORCH),
        ("horovod_mnist", *TORCH),
        (
            "torch_dataparallel_mnist",
            "torch_dataparallel_mnist.py",
            [],
            [*ONE, *STEADY],
        ),
        ("tensorflow_mnist", "tensorflow_mnist.py", HOROVOD, STEADY),
        ("horovod_keras_mnist", "horovod_keras_mnist.py", HOROVOD, []),
        ("mirrored_mnist", "strategy_mnist.py", [], ONE),
        ("multi_worker_mnist", "strategy_mnist.py", [], ONE),
    ],
)
def test_a_batch_file_learns_what_one_worker_does(learn, name, script, options, arguments):
    batch, ranks, started = as_batch(name)
    together = learn(batch, ranks, started, *BATCH[name], *SHARED)
    same(learn(script, 1, options, *arguments, *ALONE), together)


def test_every_batch_file_is_tried():
    assert {file.stem for file in EXAMPLES.glob("*.sbatch")} == set(BATCH)


def test_every_script_in_the_pages_is_python():
    count = 0
    for page in sorted(PAGES.rglob("*.md")):
        for script in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            compile(script, str(page), "exec")
            count += 1
    assert count > 25
