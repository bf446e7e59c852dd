"""PyTorch's process group: its collectives as requests of the engine.

PyTorch calls the methods from Python, and from C++ through methods of the same names of its own
class; names have changed between versions, and all of them are supported. Tensors are passed to
the engine where they are, on the CPU or on a GPU, as in ``sirtaki.torch``.
"""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections import defaultdict
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from sirtaki._core.handle import Handle
from sirtaki.torch.distributed.completer import join_threads
from sirtaki.torch.distributed.eager import run_eagerly
from sirtaki.torch.distributed.lane import Lane
from sirtaki.torch.distributed.moving import Moving
from sirtaki.torch.distributed.pairs import Pairs
from sirtaki.torch.distributed.place import Place, monitor
from sirtaki.torch.distributed.reducing import Reducing
from sirtaki.torch.distributed.tensors import Tensors
from sirtaki.torch.distributed.work import CombinedWork, Work

_HAS_GPU = torch.cuda.is_available()


class Group(Reducing, Moving, dist.ProcessGroup):
    """The ranks of a group, as ``torch.distributed`` knows them."""

    def __init__(self, place: Place, lane: Lane, pairs: Pairs) -> None:  # noqa: D107
        dist.ProcessGroup.__init__(self, place.rank, place.size)
        self._rank, self._size = place.rank, place.size
        self._place, self._lane, self._pairs = place, lane, pairs
        self._coalescing: list[Work] | None = None
        self.world = place.world
        self._name = self._description = ""
        self.exchanges: dict[tuple, itertools.count] = defaultdict(itertools.count)
        """How often objects were exchanged, by kind of call; see ``objects``."""
        _open.add(self)

    @property
    def engine(self) -> Any:
        """The engine that runs its collectives."""
        return self._lane.engine

    def barrier(self, opts: Any = None) -> Work:
        """Done once all ranks have called it."""

        def start(engine: Any, name: Any) -> Any:
            return Handle(engine.barrier(name), lambda _: [])

        return self._submit("barrier", [], start)

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        """Waits for all ranks, and names those that did not come in time."""
        monitor(self._place.meeting("monitored_barrier"), self._place, timeout, wait_all_ranks)

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        """Sends a tensor to another rank."""
        return self._combined(self._pairs.send(tensors[0], rank, tag))

    def recv(self, tensors: Tensors, rank: int, tag: int = 0) -> Work:
        """Replaces a tensor by one that another rank sends."""
        return self._combined(self._pairs.receive(tensors[0], rank, tag))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Replaces a tensor by the first that any other rank sends."""
        return self._combined(self._pairs.receive(tensors[0], None, tag))

    recvAnysource = recv_anysource  # noqa: N815

    def _submit(
        self,
        kind: str,
        tensors: Tensors,
        start: Callable[[Any, Any], Any],
        elements: int | None = None,
    ) -> Work:
        if len(tensors) == 1:
            # Nearly every call; this is the part of it that programs wait for.
            counted, devices = (
                tensors[0].numel(),
                [tensors[0].device] if tensors[0].is_cuda else [],
            )
        else:
            counted = sum(tensor.numel() for tensor in tensors)
            devices = sorted({tensor.device for tensor in tensors if tensor.is_cuda}, key=str)
        elements = counted if elements is None else elements
        return self._combined(self._lane.submit(kind, elements, devices, start))

    # Several calls as one.

    def _combined(self, work: Work) -> Work:
        if self._coalescing is not None:
            self._coalescing.append(work)
        return work

    def start_coalescing(self, device: Any = None) -> None:
        """Makes the calls from here on one."""
        self._coalescing = []

    def end_coalescing(self, device: Any = None, works: Any = None) -> CombinedWork:
        """The calls since the start, as one; older versions of PyTorch pass their works."""
        works, self._coalescing = self._coalescing or [], None
        return CombinedWork(works)

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    # What PyTorch asks a group about itself.

    # Has ``batch_isend_irecv`` return one work for all: some versions of PyTorch's pipelines wait
    # for the last one only.
    supports_coalescing = True
    supports_splitting = True

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(name) for name in ("cpu", "cuda") if name == "cpu" or _HAS_GPU]

    def get_group_store(self) -> Any:
        """The store in which its ranks met."""
        return self._place.store

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str = "",
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> Group | None:
        """A group of some of its ranks, for those that are in it; all ranks call it."""
        if self._rank not in ranks:
            return None
        group = self._place.split(ranks, group_name, timeout)
        group.setGroupName(group_name)
        group.setGroupDesc(group_desc or "")
        return group

    def eager_connect_single_device(self, device: Any = None) -> None:
        """Does nothing: GPUs are connected when they first have a tensor to send."""

    def perform_nocolor_split(self, device: Any = None) -> None:
        """Does nothing: ranks that will not be in a group have nothing to do."""

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
        """Leaves the group; unfinished requests fail."""
        self._pairs.close()
        self._lane.close()
        _open.discard(self)

    abort = shutdown


run_eagerly(Reducing, Moving, Group, Work, CombinedWork)

_open: weakref.WeakSet = weakref.WeakSet()


def _shutdown_all() -> None:
    for group in list(_open):
        group.shutdown()
    join_threads()


atexit.register(_shutdown_all)
