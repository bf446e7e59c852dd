"""``torch.distributed`` on several hosts, as network namespaces: who listens where."""

import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from jobs import IMPORT_JOBS

from sirtaki._launcher import find_command

OLD = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 5)
pytestmark = pytest.mark.skipif(OLD, reason="older stores cannot be told where to listen")

SCRIPT = IMPORT_JOBS + textwrap.dedent("""
    import torch, torch.distributed as dist, sirtaki.torch
    from jobs import listening
    dist.init_process_group("sirtaki")
    if dist.get_rank() == 0:
        for address in listening():
            print("listens on", address)
    tensor = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    # Groups of some ranks meet in PyTorch's store.
    group = dist.new_group([0, 1])
    dist.all_reduce(tensor, group=group)
    print("sum", tensor.tolist())
    dist.destroy_process_group()
""")

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
exec ip netns exec "$host" sh -c "$*"
"""


def ip(arguments):
    subprocess.run(["ip", *arguments.split()], check=True)


def wait_until_up(names):
    """A link is up some time after both of its ends."""
    deadline = time.monotonic() + 60
    for name in names:
        show = ["ip", "-n", name, "-brief", "link", "show", "up"]
        while subprocess.check_output(show, text=True).count(" UP ") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def hosts():
    """Two hosts with two networks: their names. The first one's addresses end with 1."""
    names = [f"sirtaki-py-{os.getpid()}-{number}" for number in (1, 2)]
    files = [Path("/etc/netns", name) for name in names]
    try:
        for number, (name, folder) in enumerate(zip(names, files), 1):
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
            folder.mkdir(parents=True)
            # As Debian has it on the host itself.
            own = "127.0.1.1" if number == 1 else "10.78.1.1"
            text = f"127.0.0.1 localhost\n{own} {socket.gethostname()}\n"
            (folder / "hosts").write_text(text)
        for network in (1, 2):
            first, second = names
            ip(f"-n {first} link add net{network} type veth peer name net{network} netns {second}")
            for number, name in enumerate(names, 1):
                ip(f"-n {name} addr add 10.78.{network}.{number}/24 dev net{network}")
                ip(f"-n {name} link set net{network} up")
        wait_until_up(names)
        yield names
    finally:
        for name, folder in zip(names, files):
            subprocess.run(["ip", "netns", "delete", name], check=False)
            (folder / "hosts").unlink(missing_ok=True)
            folder.rmdir()


def run(commands, variables):
    """What processes write that run at the same time."""
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, more in zip(commands, variables)
    ]
    try:
        text = "".join(process.communicate(timeout=120)[0] for process in processes)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    assert text.count("sum [6.0, 6.0, 6.0]") == 2, text
    return text


def launch(tmp_path, hosts, script):
    """Runs a script under our launcher, which is led to believe that it uses ssh."""
    (tmp_path / "script.py").write_text(script)
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o700)
    # From one of the hosts, since it serves the store in which ranks meet.
    start = [
        "ip",
        "netns",
        "exec",
        hosts[0],
        find_command(),
        "run",
        "-H",
        ",".join(f"{host}:1" for host in hosts),
    ]
    start += ["--interface", "net1", "--", sys.executable, str(tmp_path / "script.py")]
    return run([start], [{"PATH": f"{tmp_path}:{os.environ['PATH']}"}])


def listens_on(text):
    """Addresses beyond loopback, as PyTorch's process has them open."""
    found = set()
    for digits in re.findall(r"listens on ([0-9A-F]+)", text):
        words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
        address = ipaddress.ip_address(b"".join(words))
        mapped = getattr(address, "ipv4_mapped", None)
        if not (mapped or address).is_loopback:
            found.add(str(mapped or address))
    return found


def test_the_store_listens_where_the_launcher_says(tmp_path, hosts):
    assert listens_on(launch(tmp_path, hosts, SCRIPT)) == {"10.78.1.1"}


def test_the_store_listens_where_another_launcher_says(tmp_path, hosts):
    (tmp_path / "script.py").write_text(SCRIPT)
    commands, variables = [], []
    for rank, host in enumerate(hosts):
        commands.append(["ip", "netns", "exec", host, sys.executable, str(tmp_path / "script.py")])
        meeting = {"MASTER_ADDR": "10.78.1.1", "MASTER_PORT": "29511"}
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "SIRTAKI_INTERFACE": "net1"}
        variables.append({**meeting, **place})
    assert listens_on(run(commands, variables)) == {"10.78.1.1"}


def test_the_store_listens_where_other_hosts_look_for_it(tmp_path, hosts):
    """As under MPI's launchers, which say nothing to PyTorch."""
    script = "import os\ndel os.environ['MASTER_ADDR']\n" + SCRIPT
    assert listens_on(launch(tmp_path, hosts, script)) == {"10.78.1.1"}


def test_tensorflow_is_told_the_addresses_in_the_chosen_network(tmp_path, hosts):
    script = SCRIPT + "import os\nprint('config', os.environ['TF_CONFIG'])\n"
    configs = re.findall(r"config (.*)", launch(tmp_path, hosts, script))
    found = [json.loads(config) for config in configs]
    assert sorted(config["task"]["index"] for config in found) == [0, 1]
    workers = found[0]["cluster"]["worker"]
    assert workers == found[1]["cluster"]["worker"]
    assert [worker.partition(":")[0] for worker in workers] == ["10.78.1.1", "10.78.1.2"]
