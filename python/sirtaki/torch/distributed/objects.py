"""Objects that PyTorch's own functions exchange, such as ``all_gather_object``.

PyTorch turns them into tensors and unpickles what comes, from anybody. Where a group is ours, the
bytes get a code that only ranks of the job can compute, and are unpickled only if it fits.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist

from sirtaki._objects import CODE, seal, unseal
from sirtaki.torch.distributed.group import Group

ABOUT = [b"torch.distributed"]


def protect(world: Callable[[], Any]) -> None:
    """Has PyTorch seal objects with what the ranks of ``world`` know, from now on."""
    module = dist.distributed_c10d
    names = ("_object_to_tensor", "_tensor_to_object")
    if not all(hasattr(module, name) for name in names):
        return
    pack, unpack = (getattr(module, name) for name in names)

    def object_to_tensor(obj: Any, device: Any, *rest: Any, **named: Any) -> tuple:
        tensor, length = pack(obj, device, *rest, **named)
        engine = world() if _is_ours(rest, named) else None
        if engine is None:
            return tensor, length
        sealed = seal(engine, tensor.cpu().numpy().tobytes(), ABOUT)
        # PyTorch resizes it, which it cannot do with memory that it has not made.
        copied = torch.frombuffer(sealed, dtype=torch.uint8).clone()
        return copied.to(tensor.device), length + CODE

    def tensor_to_object(tensor: torch.Tensor, length: Any, *rest: Any, **named: Any) -> Any:
        engine = world() if _is_ours(rest, named) else None
        if engine is None:
            return unpack(tensor, length, *rest, **named)
        sealed = tensor.cpu().numpy().tobytes()[: int(length)]
        content = bytearray(unseal(engine, sealed, ABOUT, "an object of torch.distributed"))
        checked = torch.frombuffer(content, dtype=torch.uint8)
        return unpack(checked, len(content), *rest, **named)

    module._object_to_tensor, module._tensor_to_object = object_to_tensor, tensor_to_object


def _is_ours(rest: tuple, named: dict[str, Any]) -> bool:
    """Whether the group among these arguments is one of ours; older versions do not name it."""
    group = rest[0] if rest else named.get("group")
    return isinstance(dist.group.WORLD if group is None else group, Group)
