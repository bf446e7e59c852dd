"""The command that comes with the wheel can do everything, from any folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import sirtaki

COMMAND = str(Path(sys.executable).with_name("sirtaki"))


def call(*arguments, folder, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SIRTAKI_")}
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_trains_on_the_digits_of_the_package(tmp_path):
    done = call("train", "-n", "2", "--max-steps", "3", "--json", "result.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "training lenet" in done.stdout + done.stderr
    assert json.loads((tmp_path / "result.json").read_text())["workers"] == 2


def test_without_digits_it_says_how_to_name_them(tmp_path):
    done = call("train", "-n", "1", folder=tmp_path, SIRTAKI_DATA_FOLDER=str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path}/data/mnist" in done.stderr
    assert "hint: " in done.stderr


def test_version():
    said = call("--version", folder="/").stdout.split()
    assert said == ["sirtaki", sirtaki.__version__]
