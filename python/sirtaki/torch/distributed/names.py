"""Names for collectives and messages, which have none in PyTorch.

The engine knows requests by name, and is fastest when the same ones come again and again. So a
name consists of what is called and a small number that wraps around.

Collectives are called in the same order on all ranks, except for those that callbacks of futures
start, as some hooks of DDP do: these come whenever another collective is done. So the size is part
of a name, and only calls of one size are counted together. Rejected: counting all calls together,
which would mistake these hooks for an error. Ranks whose sizes differ wait for different names;
the engine is also told what was called, and notices that these requests will never match.

Messages of one tag arrive in the order in which they were sent. Their names say nothing about
their size, so that the engine notices at once where that differs.
"""

from __future__ import annotations

from collections import defaultdict

COLLECTIVES = 8
MESSAGES = 64
"""How many requests of one kind can be in flight before one has to wait for an earlier one."""


class Names:
    """Names of the requests to one engine."""

    def __init__(self, count: int) -> None:  # noqa: D107
        self._count = count
        self._next: dict[str, int] = defaultdict(int)

    def name(self, call: str, size: int | None) -> tuple[str, str]:
        """The name of the next request of a call and size, and the call's own."""
        call = f"distributed.{call}"
        what = call if size is None else f"{call}.{size}"
        number = self._next[what]
        self._next[what] = (number + 1) % self._count
        return f"{what}.{number}", call

    def give_back(self, name: str) -> None:
        """Undoes a count: ranks that disagreed about a request may have used different names."""
        what = name.rpartition(".")[0]
        self._next[what] = (self._next[what] - 1) % self._count
