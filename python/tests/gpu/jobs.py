"""Jobs of several ranks on a GPU, as the tests of faults and of other back ends start them."""

import os
import subprocess
import sys
import textwrap

from sirtaki._launcher import find_command

SECONDS = 120
BEGIN = """
import os, signal, threading, time
# NCCL refuses two ranks of one host on one GPU, so each says that it has a host of its own.
os.environ["NCCL_HOSTID"] = "rank-" + os.environ["SIRTAKI_RANK"]
import torch, torch.distributed as dist
import sirtaki, sirtaki.torch as hvd
hvd.init()
DEVICE = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
torch.cuda.set_device(DEVICE)
large = torch.ones(16 << 20, device=DEVICE)
hvd.allreduce_(large, op=hvd.Sum, name="first")
torch.cuda.synchronize()
"""


class Job:
    """A script on ranks. Its output goes to a file, so that nobody has to read while it runs."""

    def __init__(self, folder, script, ranks=2, options=(), **variables):
        folder.mkdir(exist_ok=True)
        file, self._output = folder / "script.py", folder / "output"
        file.write_text(BEGIN + textwrap.dedent(script))
        command = [find_command(), "run", "-n", str(ranks), "--oversubscribe", *options]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [*command, "--", sys.executable, str(file)],
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables},
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def end(self):
        """The exit status and what it said; a job that does not end is ended, and an error."""
        try:
            code = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            # It ends its ranks when it is asked to end.
            self._process.terminate()
            self._process.wait(60)
            raise AssertionError(f"the job did not end:\n{self._output.read_text()}") from None
        return code, self._output.read_text()
