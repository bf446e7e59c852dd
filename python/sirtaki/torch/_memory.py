"""Passes PyTorch's tensors to the engine and back.

Memory is used where it is, on a GPU as on the host. For a tensor on a GPU the host does not wait:
it is submitted with the stream that computes it, and waiting for the result makes the current
stream wait.

The engine keeps a tensor's memory alive, but it cannot keep a program from changing its size:
``resize_`` of a tensor in flight frees memory that the engine is using. Waiting for such a tensor
raises an error instead of returning a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch

from sirtaki import _native
from sirtaki._errors import Error
from sirtaki.torch._handle import Handle, Ticket

_CODES = _native.dtypes()
_DTYPES = {
    torch.float16: _CODES["f16"],
    torch.bfloat16: _CODES["bf16"],
    torch.float32: _CODES["f32"],
    torch.float64: _CODES["f64"],
    torch.int8: _CODES["i8"],
    torch.uint8: _CODES["u8"],
    torch.int32: _CODES["i32"],
    torch.int64: _CODES["i64"],
    torch.bool: _CODES["bool"],
}
_BYTES = _CODES["u8"]

Start = Callable[[list], Any]
"""Passes described tensors to the engine and returns its ticket."""


def reducible(dtype: torch.dtype) -> bool:
    """Whether the engine can compute with elements of this type."""
    return dtype in _DTYPES


def check(tensor: torch.Tensor, moves: bool) -> None:
    """Raises an error for an unsuitable tensor, before other ranks are involved."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a tensor is needed, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"a tensor of layout {tensor.layout} cannot travel\n"
            "hint: make it dense with to_dense(), or use sparse_allreduce_async"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"a tensor on {tensor.device} cannot travel\nhint: copy it with cpu() first"
        )
    if not moves and not reducible(tensor.dtype):
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")


def hand_in(start: Start, tensors: Sequence[torch.Tensor]) -> Handle:
    """Submits tensors that will be changed in place; the result is a list of them."""
    tensors = [tensor.detach() for tensor in tensors]
    ticket, used = _submit(start, tensors)
    addresses, streams = [copy.data_ptr() for copy in used], _streams(used)

    def finish(_: Any) -> list[torch.Tensor]:
        _require_unmoved(used, addresses)
        for tensor, copy in zip(tensors, used):
            if copy is not tensor:
                tensor.copy_(copy)
        _remember_streams(used, streams)
        return tensors

    return Handle(ticket, finish, lambda: _streams(used))


def hand_in_for_new(
    start: Start, tensors: Sequence[torch.Tensor], build: Callable[[list], Any]
) -> Handle:
    """Submits tensors from which new ones result: ``build`` gets these and the rows of each."""
    tensors = [tensor.detach() for tensor in tensors]
    kinds = [(tensor.dtype, tensor.device) for tensor in tensors]
    ticket, used = _submit(start, tensors)
    addresses, streams = [copy.data_ptr() for copy in used], _streams(used)

    def finish(outputs: list) -> Any:
        _require_unmoved(used, addresses)
        made = [
            (_new_tensor(output, dtype, device), output.rows)
            for output, (dtype, device) in zip(outputs, kinds)
        ]
        _remember_streams(used, streams)
        return build(made)

    return Handle(ticket, finish, lambda: _streams(used))


def _require_unmoved(used: list[torch.Tensor], addresses: list[int]) -> None:
    """Fails if memory that the engine used was freed meanwhile."""
    for tensor, address in zip(used, addresses):
        if tensor.numel() and _address(tensor) != address:
            raise Error(
                f"the memory of a tensor of shape {list(tensor.shape)} was resized or freed while "
                "the tensor was in flight, so its elements are lost and other memory may have "
                "been overwritten\n"
                "hint: wait for a tensor, with synchronize() or wait(), before resize_()"
            )


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor's memory is now; 0 if there is less of it than the tensor needs."""
    end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return tensor.data_ptr() if storage.nbytes() >= end else 0


def _submit(start: Start, tensors: list[torch.Tensor]) -> tuple[Ticket, list[torch.Tensor]]:
    """Submits tensors; also returns those that the engine works on, in the same order."""
    used = [tensor.contiguous() for tensor in tensors]
    return start([_describe(tensor) for tensor in used]), used


def _describe(tensor: torch.Tensor) -> tuple:
    """A contiguous tensor; elements of types that the engine does not know are passed as bytes."""
    stream = _stream(tensor.device.index) if tensor.is_cuda else None
    code = _DTYPES.get(tensor.dtype)
    if code is None:
        return tensor.data_ptr(), _BYTES, (*tensor.shape, tensor.element_size()), tensor, stream
    return tensor.data_ptr(), code, tensor.shape, tensor, stream


def _stream(device: int) -> tuple[int, int]:
    """The current stream of a GPU, as the engine wants it."""
    # Creating an object for the stream would cost more than everything else here.
    return device, torch._C._cuda_getCurrentRawStream(device)


def _streams(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """The current streams of all GPUs that hold any of these tensors."""
    devices = {tensor.device.index for tensor in tensors if tensor.is_cuda}
    return [_stream(device) for device in sorted(devices)]


def _remember_streams(tensors: Sequence[torch.Tensor], before: list[tuple[int, int]]) -> None:
    """Has PyTorch keep memory until the current streams are done, unless these are ``before``."""
    if _streams(tensors) == before:
        return
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


def _new_tensor(output: _native.Output, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor from what the engine made."""
    shape = output.shape if dtype in _DTYPES else output.shape[:-1]
    if device.type == "cuda":
        tensor = torch.empty(shape, dtype=dtype, device=device)
        if output.bytes:
            output.copy_to(tensor.data_ptr(), _stream(device.index))
        return tensor
    if not output.bytes:
        return torch.empty(shape, dtype=dtype)
    return torch.utils.dlpack.from_dlpack(output.take()).view(dtype).view(shape)
