"""Objects that PyTorch's own functions exchange, such as ``all_gather_object``.

PyTorch turns them into tensors and unpickles whatever arrives, from anyone. In groups of this back
end, the bytes get an authentication code that only the group's ranks can compute, and are
unpickled only if it matches. The code also covers which call of the group it is, the sender, and
the place among the objects of a call, so recorded bytes cannot be replayed. Which call it is is
only known if PyTorch's function was looked up after ``sirtaki.torch`` was imported; an older
reference makes codes that are valid for any call.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from typing import Any, Callable

import torch
import torch.distributed as dist

from sirtaki._core.objects import CODE, seal, unseal
from sirtaki.torch.distributed.group import Group

ABOUT = b"torch.distributed"

MESSAGES = {"send_object_list": "dst", "recv_object_list": "src"}
"""Functions for two ranks, and the name of their argument for the other rank."""
COLLECTIVES = (
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
)


class _Exchange:
    """One call, on one rank: all ranks make the same calls of a group in the same order."""

    def __init__(self, group: Group, function: str, given: dict[str, Any]) -> None:
        self._function, self._rank = function, group.rank()
        key: tuple = (function,)
        if function in MESSAGES:
            other = _other(group, MESSAGES[function], given)
            sends = function == "send_object_list"
            key = ("message", self._rank, other) if sends else ("message", other, self._rank)
        self._about = [group.world, *key, next(group.exchanges[key])]
        self._packed, self._unpacked = itertools.count(), itertools.count()

    def packing(self) -> list[bytes]:
        """What the code of the next packed object covers."""
        number = next(self._packed)
        return self._parts(self._rank if self._is_from_everybody() else None, number)

    def unpacking(self) -> list[bytes]:
        """What the code of the next unpacked object must cover."""
        number = next(self._unpacked)
        if self._is_from_everybody():
            return self._parts(number, 0)
        return self._parts(None, self._rank if self._function == "scatter_object_list" else number)

    def _is_from_everybody(self) -> bool:
        return self._function in ("all_gather_object", "gather_object")

    def _parts(self, sender: int | None, number: int) -> list[bytes]:
        return [str(part).encode() for part in (*self._about, sender, number)]


def _other(group: Group, role: str, given: dict[str, Any]) -> int | None:
    """The other rank of a message, as a rank of the group."""
    if given.get(f"group_{role}") is not None:
        return given[f"group_{role}"]
    other = given.get(role)
    return None if other is None else dist.get_group_rank(group, other)


class _Current(threading.local):
    exchange: _Exchange | None = None


_current = _Current()


def protect() -> None:
    """Has PyTorch seal the objects of groups of this back end, from now on."""
    module = dist.distributed_c10d
    names = ("_object_to_tensor", "_tensor_to_object")
    if not all(hasattr(module, name) for name in names):
        return
    pack, unpack = (getattr(module, name) for name in names)

    def object_to_tensor(obj: Any, device: Any, *rest: Any, **named: Any) -> tuple:
        tensor, length = pack(obj, device, *rest, **named)
        group = _our_group(rest[0] if rest else named.get("group"))
        if group is None:
            return tensor, length
        about = [ABOUT, *(_current.exchange.packing() if _current.exchange else [])]
        sealed = seal(group.engine, tensor.cpu().numpy().tobytes(), about)
        # PyTorch resizes it, which it cannot do with memory that it has not allocated.
        copied = torch.frombuffer(sealed, dtype=torch.uint8).clone()
        return copied.to(tensor.device), length + CODE

    def tensor_to_object(tensor: torch.Tensor, length: Any, *rest: Any, **named: Any) -> Any:
        group = _our_group(rest[0] if rest else named.get("group"))
        if group is None:
            return unpack(tensor, length, *rest, **named)
        about = [ABOUT, *(_current.exchange.unpacking() if _current.exchange else [])]
        sealed = tensor.cpu().numpy().tobytes()[: int(length)]
        content = bytearray(unseal(group.engine, sealed, about, "an object of torch.distributed"))
        checked = torch.frombuffer(content, dtype=torch.uint8)
        return unpack(checked, len(content), *rest, **named)

    module._object_to_tensor, module._tensor_to_object = object_to_tensor, tensor_to_object
    for name in (*COLLECTIVES, *MESSAGES):
        if hasattr(module, name):
            counted = _counted(name, getattr(module, name))
            setattr(module, name, counted)
            setattr(dist, name, counted)


def _counted(name: str, function: Callable) -> Callable:
    """The same function, whose objects belong to one call of it."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        given = signature.bind_partial(*args, **named).arguments
        group = _our_group(given.get("group"))
        if group is None:
            return function(*args, **named)
        before, _current.exchange = _current.exchange, _Exchange(group, name, given)
        try:
            return function(*args, **named)
        finally:
            _current.exchange = before

    return call


def _our_group(group: Any) -> Group | None:
    """The group, if it is one of this back end; older versions do not name that of all ranks."""
    group = dist.group.WORLD if group is None else group
    return group if isinstance(group, Group) else None
