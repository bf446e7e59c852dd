"""A worker that may be lost at any moment; the result says whether a step was lost or done twice.

``DIE`` has words such as ``1@5:commit``: rank 1 is killed at step 5, during a commit. The n-th
word is for the n-th round.
"""

import os
import signal
from pathlib import Path

import numpy as np

import sirtaki
import sirtaki.numpy as hvd
from sirtaki._core import job

STEPS = int(os.environ.get("STEPS", "20"))
WANTED = int(os.environ.get("WANTED", "0"))
"""Trained until there are this many workers."""
STOP = Path("stop")
"""Trained until this file is there, if ``WANTED`` is negative."""


def die(rank, step, where):
    words = os.environ.get("DIE", "").split()
    number = job.round_number() - 1
    word = words[number] if number < len(words) else ""
    ranks, _, rest = word.partition("@")
    if rest == f"{step}:{where}" and str(rank) in ranks.split(","):
        print(f"worker dies at step {step} in {where}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


class State(hvd.elastic.ArrayState):
    def save(self):
        super().save()
        die(hvd.rank(), self.step, "commit")

    def sync(self):
        super().sync()
        die(hvd.rank(), self.step, "sync")


def goes_on(state):
    if state.step < STEPS:
        return True
    if WANTED < 0:
        return not hvd.allreduce(np.array([float(STOP.exists())]), name="stop", op=hvd.Max)[0]
    return hvd.size() < WANTED


@hvd.elastic.run
def train(state):
    while goes_on(state):
        die(hvd.rank(), state.step, "step")
        mean = hvd.allreduce(np.full(8, float(state.step)), name="gradient")
        state.weights += mean
        state.step += 1
        state.commit()
        if state.step % 10 == 0 or state.size != hvd.size():
            state.size = hvd.size()
            print(
                f"step {state.step} rank {hvd.rank()} of {hvd.size()} pid {os.getpid()}",
                flush=True,
            )


def main():
    hvd.init()
    print(f"came as rank {hvd.rank()} of {hvd.size()} pid {os.getpid()}", flush=True)
    state = State(weights=np.zeros(8), step=0, size=0)
    try:
        train(state)
    except sirtaki.JobOver as over:
        print(f"saved at step {state.step}: {over}", flush=True)
        raise SystemExit(4) from None
    expected = sum(range(state.step))
    assert (state.weights == expected).all(), (state.weights, expected)
    print(f"done at step {state.step} with {hvd.size()}", flush=True)


main()
