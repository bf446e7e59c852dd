"""Names for collectives and messages, which have none in PyTorch.

The engine knows requests by name, and is fastest where the same ones come again and again. So a
name is what is called, with a small number that goes round.

Collectives are called in the same order on all ranks, but for those that callbacks of futures
start, as some hooks of DDP do: these come whenever something else is done. So the size is part of
a name, and only calls of one size are counted together. Rejected: counting all calls together, by
which a size that differs would be noticed at once, and such hooks would be taken for a mistake.

Messages of one tag arrive in the order in which they were sent. Their names say nothing about
their size, so that the engine notices where that differs.
"""

from __future__ import annotations

from collections import defaultdict

COLLECTIVES = 8
MESSAGES = 64
"""Requests of one kind that can be in flight before one has to wait for an earlier one."""


class Names:
    """Names of the requests to one engine."""

    def __init__(self, count: int) -> None:  # noqa: D107
        self._count = count
        self._next: dict[str, int] = defaultdict(int)

    def name(self, what: str) -> str:
        """The name of the next request of a kind."""
        number = self._next[what]
        self._next[what] = (number + 1) % self._count
        return f"distributed.{what}.{number}"
