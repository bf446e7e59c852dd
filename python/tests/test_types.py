"""Annotations that users rely on: the compiled part is as its stub says, strict programs pass."""

import subprocess
import sys
from pathlib import Path

import pytest

# PyTorch's own annotations differ from version to version and are large.
CONFIGURATION = "[mypy]\nstrict = True\n[mypy-torch.*]\nfollow_imports = skip\n"


@pytest.fixture
def check(tmp_path):
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)

    def check(module, option, *arguments):
        command = [sys.executable, "-m", module, option, "mypy.ini", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return check


def test_the_compiled_part_is_as_its_stub_says(check):
    options = ["--ignore-disjoint-bases", "sirtaki._native"]
    done = check("mypy.stubtest", "--mypy-config-file", *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_strict_program_passes(check):
    program = Path(__file__).parent / "programs" / "typed.py"
    done = check("mypy", "--config-file", str(program))
    assert done.returncode == 0, done.stdout + done.stderr


def test_mistakes_are_found(check, tmp_path):
    (tmp_path / "wrong.py").write_text(
        "import sirtaki\nimport sirtaki.torch as hvd\n"
        "hvd.broadcast_parameters({})\n"
        "size: str = hvd.size()\n"
        "sirtaki.run(print, ranks='two')\n"
    )
    done = check("mypy", "--config-file", "wrong.py")
    lines = [line.split(":")[1] for line in done.stdout.splitlines() if "error:" in line]
    assert lines == ["3", "4", "5"], done.stdout
