"""A rank's place in a group, and the store that the ranks of the group share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Callable

from sirtaki._errors import Error

_ALL_HERE = b"all ranks are here"


@dataclass
class Place:
    """Which rank of how many a process is, and where they meet."""

    rank: int
    size: int
    store: Any
    world: int
    """How many groups of all ranks there have been."""
    meeting: Callable[[str], Any]
    """A meeting of all ranks by a name; see ``meeting.Meeting``."""
    split: Callable[[list[int], str, timedelta | None], Any]
    """Makes a group of some of the ranks, by a name."""


def monitor(meeting: Any, place: Place, timeout: timedelta, wait_all_ranks: bool) -> None:
    """Returns once all ranks have called it; otherwise those that have raise an error that names
    the rest.

    Rank 0 waits for all ranks and tells them the outcome. Texts begin with PyTorch's words, which
    programs may look for.
    """
    seconds = timeout.total_seconds()
    if place.rank > 0:
        meeting.set(f"{place.rank}", b"here")
        # Rank 0 may have come later, and waits just as long.
        answer = meeting.wait("answer", 2 * seconds)
        if answer != _ALL_HERE:
            reason = "it did not answer" if answer is None else bytes(answer).decode()
            raise Error(
                f"Rank {place.rank} successfully reached monitoredBarrier, but received errors "
                f"while waiting for send/recv from rank 0: {reason}"
            )
        return
    error = _missing(meeting, place, seconds, wait_all_ranks)
    meeting.set("answer", _ALL_HERE if error is None else str(error).encode())
    if error is not None:
        raise error


def _missing(meeting: Any, place: Place, seconds: float, all_of_them: bool) -> Error | None:
    """The ranks that do not come in time, as an error."""
    if seconds <= 0 and place.size > 1:
        return Error("Rank 0 timed out in monitoredBarrier: its timeout is 0 s")
    deadline, missing = time.monotonic() + seconds, []
    for rank in range(1, place.size):
        if meeting.wait(f"{rank}", max(0.0, deadline - time.monotonic())) is None:
            missing.append(rank)
            if not all_of_them:
                break
    if not missing:
        return None
    many = ", ".join(str(rank) for rank in missing)
    error = Error(
        f"{'Rank' if len(missing) == 1 else 'Ranks'} {many} failed to pass monitoredBarrier "
        f"before its timeout of {seconds:g} s had passed\n"
        "hint: see what they are doing, or wait longer"
    )
    error.rank = missing[0]
    return error
