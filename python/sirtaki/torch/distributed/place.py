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
    meeting: Callable[[str], Any]
    """A meeting of all ranks by a name; see ``meeting.Meeting``."""
    split: Callable[[list[int], str, timedelta | None], Any]
    """Makes a group of some of the ranks, by a name."""


def monitor(meeting: Any, place: Place, timeout: timedelta, wait_all_ranks: bool) -> None:
    """Returns once all ranks have called it; otherwise an error on all that have names the others.

    Rank 0 waits for everybody and tells everybody.
    """
    seconds = timeout.total_seconds()
    if place.rank > 0:
        meeting.set(f"{place.rank}", b"here")
        # Rank 0 may have come later, and waits as long itself.
        answer = meeting.wait("answer", 2 * seconds)
        if answer is None:
            raise _absent([0], seconds)
        if answer != _ALL_HERE:
            raise Error(bytes(answer).decode())
        return
    deadline, missing = time.monotonic() + seconds, []
    for rank in range(1, place.size):
        if meeting.wait(f"{rank}", max(0.0, deadline - time.monotonic())) is None:
            missing.append(rank)
            if not wait_all_ranks:
                break
    if missing:
        error = _absent(missing, seconds)
        meeting.set("answer", str(error).encode())
        raise error
    meeting.set("answer", _ALL_HERE)


def _absent(ranks: list[int], seconds: float) -> Error:
    many = ", ".join(str(rank) for rank in ranks)
    who = f"rank {many}" if len(ranks) == 1 else f"ranks {many}"
    error = Error(
        f"timeout: {who} did not call monitored_barrier within {seconds:g} s\n"
        "hint: see what they are doing, or wait longer"
    )
    error.rank = ranks[0]
    return error
