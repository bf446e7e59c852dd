"""Objects on their way between ranks.

Unpickling runs whatever code the bytes ask for, and bytes between hosts may pass somebody who can
change them. So an object travels with a code that only the ranks of the job can compute, over its
bytes, its name, who sent it and how often that name came before; what does not fit is not
unpickled.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from sirtaki import _common
from sirtaki._errors import Error
from sirtaki._native import Engine

CODE = 32
"""Bytes of a code."""


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
    """Bytes with a code that says that a rank of this job sent them, and what they are."""
    return bytearray(content + engine.seal([content, *about]))


def unseal(engine: Engine, sealed: bytes, about: list[bytes], what: str) -> bytes:
    """The bytes without their code, if that fits."""
    content, code = sealed[:-CODE], sealed[-CODE:]
    if not engine.is_sealed([content, *about], code):
        raise Error(
            f"{what} was changed on its way or comes from somebody else; it is not unpickled\n"
            "hint: do all ranks exchange the same objects in the same order? if so, somebody "
            "interferes with the network, and `sirtaki run --tls` keeps them out"
        )
    return content
