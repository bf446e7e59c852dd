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
from functools import partial
from typing import Any

import torch

from sirtaki import _native
from sirtaki._core import adapter
from sirtaki._errors import Error

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

_SINGLE = (torch.float16, torch.bfloat16, torch.float32)


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


class Staged:
    """Tensors that the engine works on: themselves, or contiguous copies of them.

    ``computed_on`` are the streams on which they are computed, if those are not the current ones.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], computed_on: Sequence[Any] | None = None
    ) -> None:
        self._tensors = [tensor.detach() for tensor in tensors]
        self._used = [tensor.contiguous() for tensor in self._tensors]
        self._addresses = [tensor.data_ptr() for tensor in self._used]
        self._computed_on = computed_on or [current_stream(tensor) for tensor in self._used]

    def describe(self) -> list[tuple]:
        """What the engine has to know of each."""
        return [_describe(*one) for one in zip(self._used, self._computed_on)]

    def streams(self) -> list[tuple[int, int]]:
        """The current streams of all GPUs that hold any of these tensors."""
        devices = {tensor.get_device() for tensor in self._used if tensor.is_cuda}
        return [_stream(device) for device in sorted(devices)]

    def finish(self, _: Any) -> list[torch.Tensor]:
        """The tensors, with what the engine made of them."""
        _require_unmoved(self._used, self._addresses)
        for tensor, copy in zip(self._tensors, self._used):
            if copy is not tensor:
                tensor.copy_(copy)
        self._remember_streams()
        return self._tensors

    def adopt(self, outputs: list[_native.Output]) -> list[torch.Tensor]:
        """New tensors of the same types and in the same places."""
        _require_unmoved(self._used, self._addresses)
        made = [
            _new_tensor(output, tensor.dtype, tensor.device)
            for output, tensor in zip(outputs, self._used)
        ]
        self._remember_streams()
        return made

    def _remember_streams(self) -> None:
        """Has PyTorch keep memory until the current streams are done, if they are others now."""
        if self.streams() == sorted(
            {stream for stream in self._computed_on if stream is not None}
        ):
            return
        for tensor in self._used:
            if tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))


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


def _describe(tensor: torch.Tensor, stream: tuple[int, int] | None) -> tuple:
    """A contiguous tensor; elements of types that the engine does not know are passed as bytes."""
    code = _DTYPES.get(tensor.dtype)
    if code is None:
        return tensor.data_ptr(), _BYTES, (*tensor.shape, tensor.element_size()), tensor, stream
    return tensor.data_ptr(), code, tensor.shape, tensor, stream


def current_stream(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The current stream of the GPU that holds a tensor; ``None`` on the host."""
    return _stream(tensor.get_device()) if tensor.is_cuda else None


def _stream(device: int) -> tuple[int, int]:
    """The current stream of a GPU, as the engine wants it."""
    # Creating an object for the stream would cost more than everything else here.
    return device, torch._C._cuda_getCurrentRawStream(device)


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


class Tensors:
    """The adapter for PyTorch."""

    check, stage = staticmethod(check), Staged

    def copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous tensor with the same numbers, for a result that replaces them."""
        if tensor.layout != torch.strided:
            return tensor
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    def is_single(self, tensor: torch.Tensor) -> bool:
        """Whether its elements have at most single precision."""
        return tensor.dtype in _SINGLE

    def splits(self, given: Any) -> list[int] | None:
        """The numbers in what a user gave as splits; ``None`` for equal splits."""
        if not isinstance(given, torch.Tensor):
            return given
        if given.numel() == 0:
            return None
        if given.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"splits must be integers of 32 or 64 bits, not {given.dtype}")
        return given.tolist()

    def counts(self, rows: list[int], given: Any) -> torch.Tensor:
        """How many rows came from each rank, as a tensor like the splits that were given."""
        if isinstance(given, torch.Tensor):
            return torch.tensor(rows, dtype=given.dtype, device=given.device)
        return torch.tensor(rows, dtype=torch.int32)


TENSORS = Tensors()

hand_in = partial(adapter.hand_in, TENSORS)
hand_in_for_new = partial(adapter.hand_in_for_new, TENSORS)
