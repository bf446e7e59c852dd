"""Objects that are sent between ranks.

Unpickling runs whatever code the bytes ask for, and bytes between hosts may be changed on the way.
So an object is sent with an authentication code that only the ranks of the job can compute, over
its bytes, its name, its sender and how often that name was used before; bytes whose code does not
match are not unpickled.
"""

from __future__ import annotations

from array import array
from typing import Any

import cloudpickle

from sirtaki._core import job, views
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki._errors import Error
from sirtaki._native import Engine

CODE = 32
"""Length of a code in bytes."""


class Parcel:
    """One exchange of objects: all ranks make one, in the same order for each name."""

    def __init__(self, name: str, process_set: int) -> None:
        self._engine, self._name = job.engine(), name
        times = next(job.world.counters["object", name, process_set])
        self._about = [name, process_set, times, job.round_number()]

    def pack(self, obj: Any, sender: int) -> bytearray:
        """The object as bytes, sealed."""
        return seal(self._engine, cloudpickle.dumps(obj), self._parts(sender))

    def unpack(self, sealed: bytes, sender: int) -> Any:
        """The object of ``sender`` in these bytes."""
        what = f"the object `{self._name}` of rank {sender}"
        return cloudpickle.loads(unseal(self._engine, sealed, self._parts(sender), what))

    def _parts(self, sender: int) -> list[bytes]:
        return [str(part).encode() for part in (*self._about, sender)]


def seal(engine: Engine, content: bytes, about: list[bytes]) -> bytearray:
    """Bytes with a code that proves that a rank of this job sent them, and what they are."""
    return bytearray(content + engine.seal([content, *about]))


def unseal(engine: Engine, sealed: bytes, about: list[bytes], what: str) -> bytes:
    """The bytes without their code, if the code matches."""
    content, code = sealed[:-CODE], sealed[-CODE:]
    if not engine.is_sealed([content, *about], code):
        raise Error(
            f"{what} was changed on its way or comes from somebody else; it is not unpickled\n"
            "hint: do all ranks exchange the same objects in the same order? if so, somebody "
            "interferes with the network, and `sirtaki run --tls` keeps them out"
        )
    return content


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of ``root_rank``, which can be of any type that can be pickled.

    >>> import sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.broadcast_object({"epoch": 3})
    {'epoch': 3}
    """
    name = f"object.{name}" if name else "object"
    parcel = Parcel(name, process_set.process_set_id or 0)
    is_root = job.rank() == root_rank
    content = parcel.pack(obj, root_rank) if is_root else bytearray()
    length = array("q", [len(content)])
    _broadcast(memoryview(length).cast("B"), root_rank, f"{name}.size", process_set)
    content = content if is_root else bytearray(length[0])
    _broadcast(memoryview(content), root_rank, f"{name}.content", process_set)
    return obj if is_root else parcel.unpack(bytes(content), root_rank)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in their order.

    >>> import sirtaki.numpy as hvd
    >>> hvd.init()
    >>> hvd.allgather_object("mine") == ["mine"] * hvd.size()
    True
    """
    name = f"object.{name}" if name else "object"
    parcel = Parcel(name, process_set.process_set_id or 0)
    content = parcel.pack(obj, job.rank())
    length = memoryview(array("q", [len(content)])).cast("B")
    sizes = _gathered(length, f"{name}.sizes", process_set).cast("q").tolist()
    contents = bytes(_gathered(memoryview(content), f"{name}.contents", process_set))
    parts, end = [], 0
    for sender, size in zip(process_set.ranks, sizes):
        begin, end = end, end + size
        parts.append(parcel.unpack(contents[begin:end], sender))
    return parts


def _broadcast(view: memoryview, root_rank: int, name: str, process_set: ProcessSet) -> None:
    views.collectives.spread(view, root_rank, name, process_set, waits=True).wait()


def _gathered(view: memoryview, name: str, process_set: ProcessSet) -> memoryview:
    return views.collectives.gather([view], name, process_set, waits=True).wait()[0]
