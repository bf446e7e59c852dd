"""What programs share whose workers come and go as ``PLAN`` says, such as ``1 3 2 1``.

Each number of workers stays for a few steps; then workers are killed, or the program trains until
more have come. ``state.turns`` has pairs of a number of workers and of steps with it.
"""

import os
import signal
import time
from pathlib import Path

from sirtaki._core import job
from sirtaki._core.collectives import barrier

PLAN = [int(word) for word in os.environ["PLAN"].split()]
STEPS = 3
committed = [0]
"""Steps that this process has committed."""


def factor():
    """By what gradients of this rank are multiplied; the average over all ranks is 1."""
    return 1 + (2 * job.rank() - job.size() + 1) / 4


def steps(state):
    return sum(count for _, count in state.turns)


def _done(state):
    """How many of the wanted numbers of workers have been there."""
    done = 0
    for size, count in state.turns:
        if done < len(PLAN) and size == PLAN[done] and count >= STEPS:
            done += 1
    return done


def begin(state):
    """Called when ranks have come together: nothing that was committed is lost."""
    assert steps(state) >= committed[0], (state.turns, committed)


def goes_on(state):
    return _done(state) < len(PLAN)


def before_step(state):
    """Some ranks are killed if it is their turn."""
    done = _done(state)
    if not 0 < done < len(PLAN) or job.size() != PLAN[done - 1]:
        return
    if PLAN[done] < job.size():
        # So that all of them have committed the same step, and the others are in the next one.
        barrier()
        _passed(job.rank()).touch()
        if job.rank() == job.size() - 2:
            while not all(_passed(rank).exists() for rank in range(job.size())):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        # The machine is for those who come.
        time.sleep(0.01)


def _passed(rank):
    return Path(f"passed-{job.round_number()}-{rank}")


def after_step(state):
    """Counts a step, before it is committed."""
    turns, size, done = state.turns, job.size(), _done(state)
    if not turns or turns[-1][0] != size:
        turns.append([size, 0])
    turns[-1][1] += 1
    if _done(state) > done:
        print(f"been {size}", flush=True)


def commit(state):
    try:
        state.commit()
    finally:
        committed[0] = steps(state)
