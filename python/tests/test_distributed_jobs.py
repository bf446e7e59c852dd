"""Scripts for ``torch.distributed`` as users start them, by every launcher and by none."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from jobs import IMPORT_JOBS

from sirtaki._launcher import find_command

HERE = Path(__file__).parent
DDP = (HERE / "programs" / "ddp.py").read_text().replace('"gloo"', '"sirtaki"')
PAGES = HERE.parents[1] / "docs"
FINDS_BACK_ENDS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
EXTRA = "" if FINDS_BACK_ENDS else "import sirtaki.torch\n"
SIRTAKI = [find_command(), "run", "-n", "2", "--", sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(tmp_path, starter, script):
    file = tmp_path / "script.py"
    file.write_text(EXTRA + textwrap.dedent(script))
    mpi = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **{f"OMPI_{name}": "1" for name in mpi}}
    process = subprocess.Popen(
        [*starter, str(file)],
        env=variables,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        text, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        # Every launcher ends its ranks when it is asked to end.
        process.terminate()
        text, _ = process.communicate(timeout=60)
        pytest.fail(f"{starter} did not end:\n{text}")
    return process.returncode, text


def test_a_ddp_script_with_one_word_changed(tmp_path):
    seen = set()
    for starter in (SIRTAKI, TORCHRUN):
        code, text = run(tmp_path, starter, DDP)
        assert code == 0, text
        # Ranks may write into each other's lines, between a text and its end.
        found = re.findall(r"gradient \[[^]]*\] weights \[[^]]*\]", text)
        assert len(found) == 2 and text.count("size 2 loss") == 2, text
        seen.update(found)
    assert len(seen) == 1, seen


SHORT = """
    import torch, torch.distributed as dist, sirtaki.torch
    def main(*arguments):
        dist.init_process_group("sirtaki", **arguments[-1] if arguments else {})
        tensor = torch.full((3,), dist.get_rank() + 1.0)
        dist.all_reduce(tensor)
        print(f"sum {tensor.tolist()} of {dist.get_world_size()}")
        dist.destroy_process_group()
"""


LISTENING = """
    import torch.distributed as dist, sirtaki.torch
    from jobs import listening
    dist.init_process_group("sirtaki")
    loopback = ("0100007F", "00000000000000000000000001000000")
    if dist.get_rank() == 0:
        found = list(listening())
        assert found, "rank 0 serves PyTorch's store"
        print("elsewhere:", [address for address in found if address not in loopback])
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.skipif(not FINDS_BACK_ENDS, reason="older stores cannot be told where to listen")
def test_pytorchs_store_listens_on_loopback_alone_on_one_host(tmp_path):
    for starter in (SIRTAKI, ["mpirun", "-n", "2", sys.executable]):
        code, text = run(tmp_path, starter, IMPORT_JOBS + textwrap.dedent(LISTENING))
        assert code == 0 and "elsewhere: []" in text, text


def test_mpirun_sets_no_variables_for_pytorch(tmp_path):
    starter = ["mpirun", "-n", "2", sys.executable]
    code, text = run(tmp_path, starter, textwrap.dedent(SHORT) + "main()")
    assert code == 0 and text.count("sum [3.0, 3.0, 3.0] of 2") == 2, text


def test_nobody_starts_ranks_but_the_script(tmp_path):
    end = """
    def spawned(rank, store):
        main({"init_method": store, "rank": rank, "world_size": 2})
    if __name__ == "__main__":
        torch.multiprocessing.spawn(spawned, ("file://" + __file__ + ".store",), nprocs=2)
        main()
    """
    code, text = run(tmp_path, [sys.executable], textwrap.dedent(SHORT) + textwrap.dedent(end))
    assert code == 0 and text.count("sum [3.0, 3.0, 3.0] of 2") == 2, text
    assert "sum [1.0, 1.0, 1.0] of 1" in text


def test_a_rank_that_dies_in_the_middle_of_training(tmp_path):
    dying = DDP.replace(
        "    for _ in range(5):",
        "    for step in range(5):\n        if (rank, step) == (1, 3): os.kill(os.getpid(), 9)",
    )
    dying = dying.replace("import torch\n", "import os, torch\n", 1)
    code, text = run(tmp_path, SIRTAKI, dying)
    assert code != 0, text
    assert "rank 1" in text and "SIGKILL" in text and "RuntimeError" in text, text
    assert "Segmentation" not in text and "terminate called" not in text, text


@pytest.mark.parametrize("groups", ["whole", "part", "pair"])
def test_a_timeout_is_an_error_that_names_who_is_missing(tmp_path, groups):
    script = f"""
    import datetime, time, torch, torch.distributed as dist
    limit = datetime.timedelta(seconds=3)
    dist.init_process_group("sirtaki", **({{"timeout": limit}} if {groups != "part"} else {{}}))
    group = dist.new_group([0, 1], timeout=limit) if {groups == "part"} else None
    rank, tensor = dist.get_rank(), torch.ones(3)
    def meet():
        if {groups == "pair"}:
            dist.send(tensor, 0) if rank else dist.recv(tensor, 1)
        else:
            dist.all_reduce(tensor, group=group)
    meet()
    time.sleep(9 * rank)
    try:
        meet()
    except RuntimeError as error:
        print(f"rank {{rank}} is told: {{str(error).splitlines()[0]}}")
    """
    code, text = run(tmp_path, SIRTAKI, script)
    assert code == 0 and text.count("is told:") == 2, text
    assert re.search("rank 0 is told: .* timeout .*rank 1", text), text


LATE = """
    import datetime, time, torch, torch.distributed as dist
    dist.init_process_group("sirtaki", timeout=datetime.timedelta(seconds={limit}))
    rank, tensor = dist.get_rank(), torch.zeros(3)
    if rank == 1:
        # Longer than ranks may take to start.
        time.sleep(6)
    try:
        dist.recv(tensor, 1) if rank == 0 else dist.send(tensor + 5, 0)
        print(f"rank {{rank}} has {{tensor.tolist()}}")
    except RuntimeError as error:
        print(f"rank {{rank}} is told: {{' '.join(str(error).split())}}")
"""


def test_the_first_message_may_come_late(tmp_path):
    starter = [*SIRTAKI[:2], "--start-timeout", "2", *SIRTAKI[2:]]
    code, text = run(tmp_path, starter, LATE.format(limit=100))
    assert code == 0 and "rank 0 has [5.0, 5.0, 5.0]" in text, text


def test_a_first_message_that_does_not_come_is_a_timeout(tmp_path):
    _, text = run(tmp_path, SIRTAKI, LATE.format(limit=2))
    told = r"rank 0 is told: .*timeout of 2 s has passed: rank 0 .*message.* from rank 1"
    assert re.search(told, text), text


def test_sends_that_wait_for_each_other_are_an_error(tmp_path):
    script = """
    import torch, torch.distributed as dist
    dist.init_process_group("sirtaki")
    rank = dist.get_rank()
    try:
        dist.send(torch.ones(1), 1 - rank)
        dist.recv(torch.ones(1), 1 - rank)
    except RuntimeError as error:
        print(f"rank {rank} is told: {' '.join(str(error).split())}")
    """
    _, text = run(tmp_path, SIRTAKI, script)
    waits = [
        f'rank {one} waits for rank {1 - one} to receive "distributed.message"' for one in (0, 1)
    ]
    for rank in (0, 1):
        told = next(line for line in text.splitlines() if f"rank {rank} is told: " in line)
        assert all(wait in told for wait in waits) and "hint: " in told, text


def test_ranks_that_disagree_with_the_launcher(tmp_path):
    script = """
    import os, torch.distributed as dist
    dist.init_process_group("sirtaki", rank=1 - int(os.environ["RANK"]), world_size=2)
    """
    code, text = run(tmp_path, SIRTAKI, script)
    assert code != 0 and "the launcher says rank" in text and "hint:" in text, text


@pytest.mark.skipif(not FINDS_BACK_ENDS, reason="the page is about newer versions")
@pytest.mark.parametrize(
    ("page", "number"),
    [
        *(("from-ddp.md", n) for n in range(3)),
        *(("from-apex.md", n) for n in range(3)),
        ("local-sgd.md", 0),
        ("start.md", 0),
        ("devices.md", slice(2)),
    ],
)
def test_the_pages_for_others(tmp_path, page, number):
    scripts = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    known = {"from-ddp.md": 3, "from-apex.md": 3, "devices.md": 2}
    assert len(scripts) == known.get(page, 1)
    script = "".join(scripts[number])
    code, text = run(tmp_path, SIRTAKI, script)
    assert code == 0, text
