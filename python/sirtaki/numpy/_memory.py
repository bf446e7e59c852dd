"""Passes NumPy's arrays to the engine and back, in place where their memory allows it.

Anything with the buffer protocol or DLPack is looked at through an array in the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sirtaki import _native
from sirtaki._core.adapter import Described, Tensors
from sirtaki._core.collectives import Collectives
from sirtaki._core.handle import Streams

Arrays = list["np.ndarray[Any, Any]"]

_CODES = _native.dtypes()
_NAMES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "int64": "i64",
    "bool": "bool",
}
_DTYPES: dict[Any, int | None] = {}
"""Codes of element types, found by their names: NumPy itself has no type bfloat16."""
_SINGLE = ("float16", "bfloat16", "float32")
_ON_HOST = (1, 3)
"""DLPack's numbers for memory of the host, pinned or not."""


def array(value: Any) -> np.ndarray[Any, Any]:
    """The elements of a value, in its own memory or in a copy."""
    if isinstance(value, (int, float, np.generic)):
        return np.asarray(value)
    try:
        return _shared(value)
    except ValueError:
        if hasattr(value, "__dlpack__") and not _is_on_host(value):
            raise
        try:
            # Frameworks convert some types for NumPy that DLPack cannot pass to it.
            return value.__array__()
        except (AttributeError, TypeError, RuntimeError, NotImplementedError):
            pass
        raise


def _shared(value: Any) -> np.ndarray[Any, Any]:
    """An array in the memory of a value."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value)
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError, NotImplementedError):
        raise ValueError(
            f"an array is needed, not {type(value).__name__}\n"
            "hint: make one with numpy.asarray(), or send any object with broadcast_object()"
        ) from None


def _from_dlpack(value: Any) -> np.ndarray[Any, Any]:
    kind = type(value).__name__
    if not _is_on_host(value):
        raise ValueError(
            f"a {kind} that is not in the host's memory cannot be sent by sirtaki.numpy\n"
            "hint: copy it to the host first, or use its framework's own front end"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"NumPy cannot use this {kind}: {error}\n"
            "hint: detach and convert it first, or use its framework's own front end"
        ) from error


def _is_on_host(value: Any) -> bool:
    return int(value.__dlpack_device__()[0]) in _ON_HOST


def arrays(values: Iterable[Any]) -> Arrays:
    """The elements of values, in their own memory or in copies."""
    return [array(value) for value in values]


def writable(values: Iterable[Any]) -> Arrays:
    """Arrays for results that replace the values, in their own memory."""
    found = []
    for value in values:
        if isinstance(value, (int, float, np.generic)):
            raise ValueError(f"{value!r} is a number, which cannot be changed in place")
        here = _shared(value)
        if not here.flags.writeable:
            raise ValueError(
                f"a read-only {type(value).__name__} of shape {here.shape} cannot be changed in "
                "place\nhint: use the function without the final underscore, which returns a new "
                "array, or pass a copy"
            )
        found.append(here)
    return found


def check(one: np.ndarray[Any, Any], moves: bool) -> None:
    """Raises an error for an unsuitable array, before other ranks are involved."""
    if _code(one.dtype) is not None:
        return
    dtype = one.dtype
    if dtype.hasobject or dtype.kind in "SUT":
        raise ValueError(
            f"an array of {dtype} cannot be sent: its elements are not numbers\n"
            "hint: send it with broadcast_object() or allgather_object()"
        )
    if not dtype.isnative:
        raise ValueError(
            f"an array of {dtype} cannot be sent: its bytes are in the order of other processors\n"
            "hint: convert it with array.astype(array.dtype.newbyteorder('='))"
        )
    if not moves:
        raise ValueError(
            f"elements of type {dtype} cannot be reduced\n"
            f"hint: convert them to one of {', '.join(_NAMES)}"
        )


def _code(dtype: Any) -> int | None:
    """The engine's code for an element type; ``None`` if it does not know the type."""
    try:
        return _DTYPES[dtype]
    except KeyError:
        name = _NAMES.get(dtype.name) if dtype.isnative else None
        _DTYPES[dtype] = None if name is None else _CODES[name]
        return _DTYPES[dtype]


class _Staged:
    """Arrays that the engine works on: themselves, or contiguous copies of them."""

    def __init__(self, given: Tensors) -> None:
        self._given = list(given)
        self._used = [_contiguous(one) for one in given]

    def describe(self) -> list[Described]:
        return [_described(one) for one in self._used]

    def streams(self) -> Streams:
        return ()

    def finish(self, outcome: Any) -> Arrays:
        for given, used in zip(self._given, self._used):
            if used is not given:
                np.copyto(given, used)
        return self._given

    def adopt(self, outputs: list[_native.Output]) -> Arrays:
        return [_new_array(output, used.dtype) for output, used in zip(outputs, self._used)]


def _contiguous(one: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flags = one.flags
    return one if flags.c_contiguous and flags.aligned else np.array(one, order="C")


def _described(one: np.ndarray[Any, Any]) -> Described:
    """A contiguous array; elements of types that the engine does not know are passed as bytes."""
    address, code = one.__array_interface__["data"][0], _code(one.dtype)
    if code is None:
        return address, _CODES["u8"], (*one.shape, one.itemsize), one, None
    return address, code, one.shape, one, None


class _Memory:
    """The engine's memory, for an array that keeps it alive."""

    def __init__(self, output: _native.Output) -> None:
        self._output = output
        self.__array_interface__ = {
            "data": (output.address, False),
            "shape": (output.bytes,),
            "typestr": "|u1",
            "version": 3,
        }


def _new_array(output: _native.Output, dtype: Any) -> np.ndarray[Any, Any]:
    """An array from what the engine made."""
    shape = output.shape if _code(dtype) is not None else output.shape[:-1]
    if not output.bytes:
        return np.empty(shape, dtype)
    return np.asarray(_Memory(output)).view(dtype).reshape(shape)


class _Adapter:
    """The adapter for NumPy."""

    check, stage = staticmethod(check), _Staged

    def copied(self, one: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array(one, order="C")

    def is_single(self, one: np.ndarray[Any, Any]) -> bool:
        return one.dtype.name in _SINGLE

    def splits(self, given: Any) -> list[int] | None:
        if given is None:
            return None
        numbers = np.asarray(given)
        if numbers.size == 0:
            return None
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            raise ValueError("splits must be a list of integers, one for each rank")
        return numbers.tolist()

    def counts(self, rows: list[int], given: Any) -> np.ndarray[Any, Any]:
        return np.array(rows, getattr(given, "dtype", np.int32))


collectives = Collectives(_Adapter())
copied = collectives.adapter.copied
