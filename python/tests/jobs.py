"""What ranks run in the tests: in a module of its own, so that ranks can import it."""

import os
import signal
import sys
import threading
import time


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


def fail_in_turn():
    """All raise, rank 1 first; but it is the last to end."""
    rank, _ = place()
    if rank == 1:
        import atexit

        atexit.register(time.sleep, 2)
        raise ValueError("first")
    time.sleep(1)
    raise ConnectionError("only a consequence")


def say():
    print("said")
    print("complained", file=sys.stderr)


def wait_for_ever(folder):
    with open(os.path.join(folder, f"ready-{place()[0]}"), "w"):
        pass
    time.sleep(1000)


def large(size):
    return bytes(size)
