"""What programs report reaches a run's folder and TensorBoard's files, through every callback."""

import json
import os
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from sirtaki._launcher import find_command

PAGES = Path(__file__).parents[2] / "docs"


def run(tmp_path, script, *options):
    """The rows of the run's folder, and what TensorBoard reads of the same run."""
    file = tmp_path / "script.py"
    file.write_text(script)
    command = [find_command(), "run", "-n", "2", "--record=run", "--tensorboard", "events"]
    done = subprocess.run(
        [*command, *options, "--", sys.executable, str(file)],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (tmp_path / "run" / "steps.jsonl").read_text().splitlines()
    return [json.loads(row) for row in rows], scalars(tmp_path / "events")


def scalars(folder):
    """Steps and values of every plot, as TensorBoard itself reads them."""
    # Otherwise it imports TensorFlow, where that is installed.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.iterdir()
    events = EventAccumulator(str(file))
    events.Reload()
    plots = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    if "settings" in events.Tags()["tensors"]:
        (text,) = events.Tensors("settings")[-1].tensor_proto.string_val
        plots["settings"] = text.decode()
    return plots


def check(rows, plots, names):
    """Whatever is in the folder is in the plots, and these names are in both."""
    tags = {"loss": "loss/train", "test_loss": "loss/test"}
    tags |= {"accuracy": "accuracy/train", "test_accuracy": "accuracy/test"}
    for name, tag in tags.items():
        known = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        assert bool(known) == (name in names), (name, rows)
        assert plots.get(tag, []) == [(step, pytest.approx(value)) for step, value in known]


def page(name, number):
    return re.findall(r"```python\n(.*?)```", (PAGES / name).read_text(), re.DOTALL)[number]


def test_progress_and_settings_are_what_tensorboard_reads(tmp_path):
    script = """
    import sirtaki, sirtaki.numpy as hvd
    hvd.init()
    sirtaki.describe(lr=0.1, model="a|b")
    for step in range(1, 301):
        sirtaki.progress(step, 300, epoch=step / 100, loss=1 / step, accuracy=step / 300)
    sirtaki.progress(300, 300, test_loss=0.5, test_accuracy=0.75)
    """
    rows, plots = run(tmp_path, textwrap.dedent(script))
    assert len(rows) == 301 and plots["progress/epoch"][-1] == (300, 3.0)
    check(rows, plots, {"loss", "accuracy", "test_loss", "test_accuracy"})
    assert "| lr | 0.1 |" in plots["settings"] and "| model | a b |" in plots["settings"]


def test_lightning_reduces_by_sirtaki_and_reports(tmp_path):
    rows, plots = run(tmp_path, page("from-lightning.md", 0))
    check(rows, plots, {"loss", "test_loss", "test_accuracy"})
    # 256 samples on two ranks in batches of 16, three times.
    assert rows[-1]["step"] == rows[-1]["steps"] == 24 and rows[-1]["epochs"] == 3
    tests = [(row["step"], row["epoch"]) for row in rows if "test_accuracy" in row]
    assert tests == [(8, 1), (16, 2), (24, 3)], rows
    found = [row["test_loss"] for row in rows if "test_loss" in row]
    assert found[-1] < found[0] and rows[-1]["loss"] < rows[0]["loss"]


def test_hugging_face_reduces_by_sirtaki_and_reports(tmp_path):
    rows, plots = run(tmp_path, page("from-accelerate.md", 1))
    check(rows, plots, {"loss", "test_loss", "test_accuracy"})
    assert rows[-1]["step"] == rows[-1]["steps"] == 8 and rows[-1]["epochs"] == 2
    # 64 samples on two ranks in batches of 8, twice.
    assert rows[-1]["samples"] == 128
    assert len([row for row in rows if "test_accuracy" in row]) == 2
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["batch_per_worker"] == "8" and "| lr | " in plots["settings"]


def test_accelerate_runs_over_sirtaki(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(page("from-accelerate.md", 0))
    command = [find_command(), "run", "-n", "2", "--", sys.executable, str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "package"), [("lightning", "lightning"), ("transformers", "transformers")]
)
def test_a_missing_package_is_named(module, package):
    script = f"""
    import sys
    class Hides:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("lightning", "pytorch_lightning", "transformers"):
                raise ModuleNotFoundError(f"No module named {{name}}", name=name.partition(".")[0])
    sys.meta_path.insert(0, Hides())
    try:
        import sirtaki.{module}
    except ImportError as error:
        print(error)
    """
    text = subprocess.check_output([sys.executable, "-c", textwrap.dedent(script)], text=True)
    assert f"needs the package {package}" in text and f"hint: pip install {package}" in text


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    command = [find_command(), "run", "-n", "1", "--tensorboard", "file/events", "--", "true"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "file/events" in done.stderr and "hint:" in done.stderr
