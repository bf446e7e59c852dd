"""What ranks run in the tests: in a module of its own, so that ranks can import it."""

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path


class AboutError(Exception):
    """An exception that cannot be made from its arguments, and so cannot be unpickled."""

    def __init__(self, *, about):
        super().__init__(f"about {about}")


def place():
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def add(a, b, scale=1):
    return (a + b) * scale + place()[0]


def where():
    return os.getcwd(), os.environ.get("GREETING")


def fail_on(rank, how):
    """That rank fails; the others wait much longer than any test."""
    if place()[0] != rank:
        time.sleep(1000)
    return how()


def divide():
    return 1 // 0


def complain():
    raise AboutError(about="everything")


def die():
    print("about to die", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)


def vanish():
    os._exit(0)


def leave():
    sys.exit(3)


def return_a_lock():
    return threading.Lock()


def fail_in_turn(folder):
    """Both raise, rank 1 first; but rank 0 is the first to end."""
    process, raised = Path(folder, "process"), Path(folder, "raised")
    if place()[0] == 1:
        # Runs when the exception is on its way to the caller.
        atexit.register(_outlive, process, raised)
        raise ValueError("first")
    process.symlink_to(f"/proc/{os.getpid()}")
    _until(raised.exists)
    raise ConnectionError("only a consequence")


def _outlive(process, raised):
    _until(process.is_symlink)
    raised.touch()
    # The link leads nowhere when its process is gone.
    _until(lambda: not process.exists())


def _until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def say():
    print("said")
    print("complained", file=sys.stderr)


def wait_for_ever(folder):
    Path(folder, f"ready-{place()[0]}").touch()
    time.sleep(1000)


def clean_up_late(folder):
    try:
        wait_for_ever(folder)
    finally:
        time.sleep(0.5)
        Path(folder, f"clean-{place()[0]}").touch()


def large(size):
    return bytes(size)


def listening():
    """Addresses on which this process listens, as the kernel writes them."""
    inodes = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            inodes.add(os.readlink(f"/proc/self/fd/{number}"))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                yield fields[1].split(":")[0]


IMPORT_JOBS = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
"""The beginning of a script that imports this module."""
