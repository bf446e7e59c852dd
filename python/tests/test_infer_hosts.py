"""``sirtaki infer`` on two hosts, which are network namespaces, and as an array of Slurm jobs."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from infer_command import PATIENCE, command, environment, left_behind, plain, wait_for, whole
from test_distributed_hosts import SSH
from test_distributed_hosts import hosts as two_hosts  # noqa: F401

SHAPE = (40, 52, 46)


@pytest.fixture
def made(tmp_path):
    volume = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    np.save(tmp_path / "in.npy", volume)
    model = plain(tmp_path / "net.onnx", width=12, layers=3)
    return tmp_path, model, whole(model, volume)


def test_two_hosts_share_the_tiles(made, request):
    folder, model, want = made
    names = request.getfixturevalue("two_hosts")
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o700)
    out = folder / "out.npy"
    words = [model, folder / "in.npy", out, "-H", ",".join(f"{name}:1" for name in names)]
    variables = environment()
    variables["PATH"] = f"{ssh.parent}{os.pathsep}{variables['PATH']}"
    start = ["ip", "netns", "exec", names[0], *command(*words, "--tile", "16,16,16", "--json")]
    done = subprocess.run(
        start, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    workers = json.loads(done.stdout)["workers"]
    assert len(workers) == 2 and all(worker["tiles"] > 0 for worker in workers)
    assert np.array_equal(np.load(out), want) and left_behind(folder) == []


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture
def slurm(tmp_path):
    """A Slurm of one node on this machine: the variables that its commands need."""
    place, name = tmp_path / "slurm", socket.gethostname().split(".")[0]
    (place / "state").mkdir(parents=True)
    (place / "n0").mkdir()
    (place / "munge.key").write_bytes(os.urandom(64))
    (place / "munge.key").chmod(0o400)
    control, node = free_ports(2)
    # Slurm 22 asks for cgroups even if its settings use none, unless it is told the version.
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    settings = [
        "ClusterName=volumes",
        f"SlurmctldHost={name}(127.0.0.1)",
        f"SlurmctldPort={control}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={place}/munge.socket",
        f"StateSaveLocation={place}/state",
        f"SlurmdSpoolDir={place}/%n",
        f"SlurmctldPidFile={place}/slurmctld.pid",
        f"SlurmdPidFile={place}/%n.pid",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "SlurmdParameters=config_overrides",
        "MpiDefault=none",
        f"NodeName=n0 NodeHostname={name} NodeAddr=127.0.0.1 Port={node} CPUs=4 RealMemory=1000",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    (place / "slurm.conf").write_text("\n".join(settings) + "\n")
    variables = {**environment(), "SLURM_CONF": str(place / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", "--key-file", place / "munge.key"]
    for kind in ("socket", "pid-file", "log-file", "seed-file"):
        munge += [f"--{kind}", place / f"munge.{kind.split('-')[0]}"]
    daemons = []

    def daemon(*words):
        with (place / f"{words[0]}.log").open("w") as log:
            daemons.append(subprocess.Popen(words, env=variables, stdout=log, stderr=log))

    def idle():
        show = ["sinfo", "-h", "-o", "%T"]
        said = subprocess.run(show, env=variables, capture_output=True, text=True, check=False)
        return said.stdout.strip() == "idle"

    try:
        daemon(*munge)
        wait_for((place / "munge.socket").exists)
        daemon("slurmctld", "-D")
        daemon("slurmd", "-D", "-N", "n0")
        wait_for(idle)
        yield variables
    finally:
        for process in reversed(daemons):
            process.terminate()
            process.wait(timeout=PATIENCE)


def test_an_array_of_jobs_works_on_one_volume(made, slurm):
    folder, model, want = made
    out = folder / "out.npy"
    words = command(model, folder / "in.npy", out, "-n", 1, "--tile", "16,16,16", "--join")
    assert Path(words[0]).exists() or shutil.which(words[0])
    start = ["sbatch", "--wait", "--array=1-3", "-n1", "-o", folder / "job-%a.log", "--wrap"]
    done = subprocess.run(
        [*start, " ".join(words)],
        env=slurm,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    logs = "".join(log.read_text() for log in folder.glob("job-*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert len(list(folder.glob("job-*.log"))) == 3
    assert np.array_equal(np.load(out), want) and left_behind(folder) == []
