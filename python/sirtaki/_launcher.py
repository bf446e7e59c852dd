"""The ``sirtaki run`` that does the work: found, started, listened to, and ended with the caller.

It gets its own session, so that a Ctrl-C in the terminal reaches only the caller, which passes it
on; otherwise it would arrive once or twice, depending on how the caller was started. What the job
writes is written by the calling thread, to ``sys.stdout`` and ``sys.stderr``: only then does it
appear in a notebook's cell.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from sirtaki._bar import Bar
from sirtaki._errors import LaunchError

PROGRESS = "progress: "
"""What lines of `--progress json` begin with."""

WITH_PARENT = Path(__file__).with_name("_with_parent.py")


def find_command() -> str:
    """The path of the ``sirtaki`` command."""
    wanted = os.environ.get("SIRTAKI_COMMAND")
    beside = Path(sys.executable).with_name("sirtaki") if sys.executable else None
    if wanted:
        found = shutil.which(wanted)
        problem = f"SIRTAKI_COMMAND is {wanted}, where there is no program"
    else:
        found = (beside and shutil.which(str(beside))) or shutil.which("sirtaki")
        problem = f"there is no `sirtaki` command, neither as {beside} nor in PATH"
    if not found:
        raise LaunchError(
            f"{problem}\nhint: `pip install sirtaki` brings it; otherwise "
            "set SIRTAKI_COMMAND to its path"
        )
    return os.path.abspath(found)


class Launcher:
    """A job in progress."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        show: bool,
        bar: Bar | None = None,
    ) -> None:
        self.report = ""
        """The closing report of a job that failed."""
        self._show, self._bar = show, bar
        python = [sys.executable, "-I", "-S", str(WITH_PARENT), str(os.getpid())]
        self._process = subprocess.Popen(
            [*python, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        self._heard: queue.SimpleQueue = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in (("stdout", self._process.stdout), ("stderr", self._process.stderr))
        ]
        self._open = len(self._readers)
        for reader in self._readers:
            reader.start()

    def wait(self, timeout: float | None) -> int:
        """The exit code once the job is over; meanwhile shows what it writes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._open:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                name, line = self._heard.get(timeout=left)
            except queue.Empty:
                raise TimeoutError from None
            if line is None:
                self._open -= 1
            else:
                self._wrote(name, line)
        for reader in self._readers:
            reader.join()
        return self._process.wait()

    def end(self, number: signal.Signals) -> None:
        """Has the launcher end the job and waits for it; an interrupt meanwhile kills it."""
        try:
            self._process.send_signal(number)
            self.wait(None)
        except BaseException:
            # The kernel then kills everything that it started.
            self._process.kill()
            self._process.wait()
            raise

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self._heard.put((name, line.decode(errors="replace")))
        self._heard.put((name, None))

    def _wrote(self, name: str, line: str) -> None:
        # Lines of ranks have a tag, so this one is the launcher's, and the last one that it
        # writes.
        if name == "stderr" and (self.report or line.startswith("error: ")):
            self.report += line
        elif self._bar and name == "stderr" and line.startswith(PROGRESS):
            self._bar.show(json.loads(line[len(PROGRESS) :]))
        elif self._show:
            stream = getattr(sys, name)
            if stream is not None:
                stream.write(line)
                stream.flush()
