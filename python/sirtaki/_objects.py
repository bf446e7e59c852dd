"""Objects that are sent between ranks.

Unpickling runs whatever code the bytes ask for, and bytes between hosts may be changed on the way.
So an object is sent with an authentication code that only the ranks of the job can compute, over
its bytes, its name, its sender and how often that name was used before; bytes whose code does not
match are not unpickled.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from sirtaki import _common
from sirtaki._errors import Error
from sirtaki._native import Engine

CODE = 32
"""Length of a code in bytes."""


class Parcel:
    """One exchange of objects: all ranks make one, in the same order for each name."""

    def __init__(self, name: str, process_set: int) -> None:
        self._engine, self._name = _common.engine(), name
        times = next(_common.world.counters["object", name, process_set])
        self._about = [name, process_set, times, _common.world.rounds]

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
