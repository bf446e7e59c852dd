"""PyTorch's process group: its collectives as requests of the engine.

PyTorch calls the methods from Python, and from C++ through the methods of the same names of its
own class; names have changed over its versions, and all are served. Tensors of the CPU are used
where they are, those of a GPU by way of pinned memory, both as in ``sirtaki.torch``.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Callable

import torch
import torch.distributed as dist

from sirtaki.torch import _carry
from sirtaki.torch.distributed.lane import Lane
from sirtaki.torch.distributed.moving import Moving
from sirtaki.torch.distributed.pairs import Pairs
from sirtaki.torch.distributed.reducing import Reducing
from sirtaki.torch.distributed.tensors import Tensors
from sirtaki.torch.distributed.work import Together, Work, join_threads

_CPU = torch.device("cpu")


class Group(Reducing, Moving, dist.ProcessGroup):
    """The ranks of a group, as ``torch.distributed`` knows them."""

    def __init__(self, rank: int, size: int, lane: Lane, pairs: Pairs) -> None:  # noqa: D107
        dist.ProcessGroup.__init__(self, rank, size)
        self._rank, self._size = rank, size
        self._lane, self._pairs = lane, pairs
        self._together: list[Work] | None = None
        self._name = self._description = ""
        _open.add(self)

    def barrier(self, opts: Any = None) -> Work:
        """Done once all ranks have called it."""

        def start(engine: Any, name: str) -> Any:
            return _carry.Handle(engine.barrier(name), lambda _: [])

        return self._submit("barrier", [], start)

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        """Sends a tensor to another rank."""
        return self._noted(self._pairs.send(tensors[0], rank, tag))

    def recv(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        """Replaces a tensor by one that another rank sends."""
        return self._noted(self._pairs.receive(tensors[0], rank, tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Cannot be had."""
        raise NotImplementedError(
            "the back end sirtaki cannot receive from just any rank\nhint: say which, with src"
        )

    recvAnysource = recv_anysource  # noqa: N815

    def _submit(
        self,
        kind: str,
        tensors: Tensors,
        start: Callable[[Any, str], Any],
        elements: int | None = None,
    ) -> Work:
        if elements is None:
            elements = sum(tensor.numel() for tensor in tensors)
        device = tensors[0].device if tensors else _CPU
        return self._noted(self._lane.submit(kind, elements, device, start))

    # Several calls as one.

    def _noted(self, work: Work) -> Work:
        if self._together is not None:
            self._together.append(work)
        return work

    def start_coalescing(self, device: Any = None) -> None:
        """The calls from here on are one."""
        self._together = []

    def end_coalescing(self, device: Any = None, works: Any = None) -> Together:
        """The calls since the start, as one; older versions have kept their works."""
        works, self._together = self._together or [], None
        return Together(works)

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    # What PyTorch asks a group about itself.

    supports_coalescing = False
    supports_splitting = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        """No memory is better than any other."""
        return False

    def _get_backend(self, device: Any) -> Group:
        return self

    def getBackendName(self) -> str:  # noqa: N802
        """The name of the back end."""
        return "sirtaki"

    def name(self) -> str:
        """The name of the back end."""
        return "sirtaki"

    def rank(self) -> int:
        """Which rank of the group this is."""
        return self._rank

    def size(self) -> int:
        """How many ranks it has."""
        return self._size

    getRank, getSize = rank, size  # noqa: N815

    @property
    def group_name(self) -> str:
        """PyTorch's name for the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What it is for."""
        return self._description

    def getGroupName(self) -> str:  # noqa: N802
        """PyTorch's name for the group."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Gives it a name."""
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        """What it is for."""
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Says what it is for."""
        self._description = description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    def shutdown(self) -> None:
        """Leaves the group; what is not done fails."""
        self._pairs.close()
        self._lane.close()
        _open.discard(self)

    abort = shutdown


_open: weakref.WeakSet = weakref.WeakSet()


def _shutdown_all() -> None:
    for group in list(_open):
        group.shutdown()
    join_threads()


atexit.register(_shutdown_all)
