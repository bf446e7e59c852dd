"""The smallest adapter: plain bytes, in writable views of one dimension."""

from __future__ import annotations

import ctypes
from typing import Any

from sirtaki import _native
from sirtaki._core.adapter import Described, Tensors
from sirtaki._core.collectives import Collectives
from sirtaki._core.handle import Streams

_BYTES = _native.dtypes()["u8"]


class _Staged:
    """Views, with their memory as the engine wants it."""

    def __init__(self, views: Tensors) -> None:
        self._views = list(views)

    def describe(self) -> list[Described]:
        return [_described(view) for view in self._views]

    def streams(self) -> Streams:
        return ()

    def finish(self, outcome: Any) -> list[memoryview]:
        return self._views

    def adopt(self, outputs: list[_native.Output]) -> list[memoryview]:
        return [memoryview(ctypes.string_at(one.address, one.bytes)) for one in outputs]


def _described(view: memoryview) -> Described:
    memory = (ctypes.c_ubyte * len(view)).from_buffer(view)
    return ctypes.addressof(memory), _BYTES, view.shape, memory, None


class _Views:
    """The adapter."""

    def check(self, view: memoryview, moves: bool) -> None:
        pass

    def copied(self, view: memoryview) -> memoryview:
        return memoryview(bytearray(view))

    def is_single(self, view: memoryview) -> bool:
        return False

    def stage(self, views: Tensors) -> _Staged:
        return _Staged(views)

    def splits(self, given: Any) -> list[int] | None:
        return given

    def counts(self, rows: list[int], given: Any) -> list[int]:
        return rows


collectives = Collectives(_Views())
