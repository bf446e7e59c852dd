"""Weights & Biases and MLflow, as they are, without a network: what is reported arrives there."""

import json
import os
import struct
import subprocess
import sys
import textwrap

import mlflow
import pytest
from wandb.proto import wandb_internal_pb2

from sirtaki._launcher import find_command

SCRIPT = """
    import sirtaki, sirtaki.numpy as hvd
    hvd.init()
    sirtaki.describe(lr=0.1, model="cnn")
    for step in range(1, 4):
        sirtaki.progress(step, 3, loss=1 / step)
    sirtaki.progress(3, 3, test_accuracy=0.75)
    hvd.shutdown()
"""


def run(tmp_path, trackers, script=SCRIPT, **variables):
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script))
    named = [word for name in variables for word in ("--env", name)]
    command = [find_command(), "run", "-n", "2", *named, "--", sys.executable, str(file)]
    environment = {**os.environ, "SIRTAKI_TRACKERS": trackers, **variables}
    return subprocess.run(
        command,
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_mlflow_has_settings_and_values(tmp_path):
    place = f"sqlite:///{tmp_path}/mlflow.db"
    done = run(tmp_path, "mlflow", MLFLOW_TRACKING_URI=place)
    assert done.returncode == 0, done.stdout + done.stderr
    client = mlflow.MlflowClient(place)
    (found,) = client.search_runs(["0"])
    assert found.info.status == "FINISHED" and found.data.params == {"lr": "0.1", "model": "cnn"}
    history = client.get_metric_history(found.info.run_id, "loss")
    assert [(one.step, one.value) for one in history] == [
        (1, 1.0),
        (2, 0.5),
        (3, pytest.approx(1 / 3)),
    ]
    assert found.data.metrics["test_accuracy"] == 0.75


def records(file):
    """What W&B has written: messages in the format of LevelDB's log, after a header of 7 bytes."""
    data, place, parts = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        rest = 32768 - place % 32768
        if rest < 7:
            place += rest
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        # Whole, or the last part of several.
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def items(found):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in found}


def test_wandb_has_settings_and_values(tmp_path):
    done = run(tmp_path, "wandb", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    rows, settings = {}, {}
    for record in records(file):
        row = items(record.history.item)
        if "_step" in row:
            rows.setdefault(row["_step"], {}).update(row)
        settings |= items(record.config.update) | items(record.run.config.update)
    assert [rows[step]["loss"] for step in (1, 2, 3)] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert rows[3]["test_accuracy"] == 0.75 and settings["lr"] == 0.1


def test_mistakes_are_told(tmp_path):
    done = run(tmp_path, "wandbb")
    assert done.returncode != 0 and "only wandb and mlflow are known" in done.stderr
