"""Programs that take their rank from mpi4py, under `sirtaki run`: one job of all ranks.

It works with MPICH and with Open MPI. Both are the system's; mpi4py takes the one it is told to.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki._launcher import find_command

PROGRAM = Path(__file__).with_name("programs") / "mpi.py"


def system(name):
    """The path of a library of the system."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True)
    paths = [
        line.split(" => ")[1] for line in listed.stdout.splitlines() if line.split()[0] == name
    ]
    assert paths, f"{name} is not installed"
    return paths[0]


@pytest.fixture
def mpich(tmp_path):
    """Variables with which mpi4py takes MPICH, which has another file name on Debian."""
    (tmp_path / "libmpi.so.12").symlink_to(system("libmpich.so.12"))
    return {"MPI4PY_LIBMPI": str(tmp_path / "libmpi.so.12"), "LD_LIBRARY_PATH": str(tmp_path)}


@pytest.fixture
def openmpi():
    """Variables with which mpi4py takes Open MPI."""
    return {"MPI4PY_LIBMPI": system("libmpi.so.40")}


def run(variables, *words):
    """Runs a job to its end, apart from whatever started this test."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SIRTAKI_", "OMPI_", "PMI"))
    }
    command = [find_command(), "run", *words]
    return subprocess.run(
        command, check=False, env=kept | variables, capture_output=True, text=True, timeout=300
    )


def lines(size, library):
    total = size * (size + 1) // 2
    return [f"[{rank}] rank {rank} of {size}: {total} by {library}" for rank in range(size)]


@pytest.mark.parametrize("size", [2, 4])
def test_mpich_is_one_job(mpich, size):
    done = run(mpich, "-n", str(size), "--", sys.executable, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == lines(size, "MPICH")
    assert done.stderr == ""


def test_mpich_is_one_job_on_two_hosts(mpich):
    """Both hosts are this machine, with an agent and a table of values each."""
    done = run(mpich, "-H", "localhost:1,127.0.0.1:2", "--", sys.executable, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == lines(3, "MPICH")


@pytest.mark.parametrize("size", [2, 4])
def test_open_mpi_is_one_job_and_it_is_said_how(openmpi, size):
    done = run(openmpi, "-n", str(size), "--", sys.executable, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == lines(size, "Open")
    assert done.stderr.startswith(
        "note: the program uses Open MPI, so its ranks are connected through "
    ), done.stderr
    assert done.stderr.count("\n") == 1


def test_open_mpi_is_one_job_on_two_hosts(openmpi):
    done = run(openmpi, "-H", "localhost:1,127.0.0.1:2", "--", sys.executable, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == lines(3, "Open")


def test_open_mpi_that_is_not_seen_is_refused_with_the_option_that_helps(openmpi):
    script = ["--", "sh", "-c", f"exec {sys.executable} {PROGRAM}"]
    alone = run(openmpi, "-n", "2", *script)
    assert alone.returncode != 0
    assert "rank 0 of 1" not in alone.stdout
    assert "add --mpi to connect" in alone.stderr, alone.stderr
    done = run(openmpi, "-n", "2", "--mpi", *script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == lines(2, "Open")
    wanted = run(openmpi, "-n", "2", "--mpi=no", *script)
    assert sorted(wanted.stdout.splitlines()) == [
        f"[{rank}] rank 0 of 1: 1 by Open" for rank in range(2)
    ]


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_a_rank_that_aborts_ends_the_job_with_its_code(library, request, tmp_path):
    program = tmp_path / "abort.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD\n"
        "comm.Barrier()\n"
        "comm.Abort(7) if comm.rank == 1 else comm.recv(source=1)\n"
    )
    done = run(request.getfixturevalue(library), "-n", "2", "--", sys.executable, str(program))
    assert done.returncode == 7, done.stderr
    assert "rank 1 ended with exit code 7" in done.stderr


def test_no_launcher_of_open_mpi_is_an_error(openmpi, tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    done = run(openmpi | {"PATH": str(tmp_path)}, "-n", "2", "--", sys.executable, str(PROGRAM))
    assert done.returncode == 1
    assert "needs the mpirun of Open MPI 4, which is not in PATH" in done.stderr, done.stderr
