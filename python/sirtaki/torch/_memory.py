"""PyTorch's tensors for the engine and back.

Memory of CPU tensors is used where it lies. Tensors of a GPU travel through pinned memory of the
host: copied on a stream of their own, so that neither the program nor its stream waits, and handed
in by a thread as soon as the copy is there.

The engine keeps a tensor's memory alive, but it cannot keep a program from changing its size:
``resize_`` of a tensor in flight frees memory that the engine works in. Whoever waits for such a
tensor gets an error instead of a result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import torch

from sirtaki import _native
from sirtaki._errors import Error
from sirtaki.torch._handle import Deferred, Handle, Ticket

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
"""Hands described tensors to the engine and returns its ticket."""


def reducible(dtype: torch.dtype) -> bool:
    """Whether the engine can compute with such elements."""
    return dtype in _DTYPES


def check(tensor: torch.Tensor, moves: bool) -> None:
    """Says what is wrong with a tensor, before anybody else is asked."""
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
    """Hands in tensors that will be changed where they are, and returns them as a list."""
    tensors = [tensor.detach() for tensor in tensors]
    ticket, hosts = _submit(start, tensors)
    addresses = [host.data_ptr() for host in hosts]

    def finish(_: Any) -> list[torch.Tensor]:
        _require_unmoved(hosts, addresses)
        for device, numbers in _by_device(tensors).items():
            pairs = [(tensors[number], hosts[number]) for number in numbers]
            if device.type == "cuda":
                _stager(device).copy_back(pairs)
                continue
            for tensor, host in pairs:
                if host is not tensor:
                    tensor.copy_(host)
        return tensors

    return Handle(ticket, finish)


def hand_in_for_new(
    start: Start, tensors: Sequence[torch.Tensor], build: Callable[[list], Any]
) -> Handle:
    """Hands in tensors of which new ones will come: ``build`` gets these and the rows of each."""
    tensors = [tensor.detach() for tensor in tensors]
    kinds = [(tensor.dtype, tensor.device) for tensor in tensors]
    ticket, hosts = _submit(start, tensors)
    addresses = [host.data_ptr() for host in hosts]

    def finish(outputs: list) -> Any:
        _require_unmoved(hosts, addresses)
        made = [
            (_new_tensor(output, dtype).to(device), output.rows)
            for output, (dtype, device) in zip(outputs, kinds)
        ]
        return build(made)

    return Handle(ticket, finish)


def _require_unmoved(hosts: list[torch.Tensor], addresses: list[int]) -> None:
    """Fails where memory that the engine worked in was freed meanwhile."""
    for host, address in zip(hosts, addresses):
        if host.numel() and _address(host) != address:
            raise Error(
                f"the memory of a tensor of shape {list(host.shape)} was resized or freed while "
                "the tensor was in flight, so its elements are lost and other memory may have "
                "been overwritten\n"
                "hint: wait for a tensor, with synchronize() or wait(), before resize_()"
            )


def _address(tensor: torch.Tensor) -> int:
    """Where a tensor's memory is now; 0 if there is less of it than the tensor needs."""
    end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return tensor.data_ptr() if storage.nbytes() >= end else 0


def _by_device(tensors: Sequence[torch.Tensor]) -> dict[torch.device, list[int]]:
    """The places of the tensors that each device has."""
    places = defaultdict(list)
    for place, tensor in enumerate(tensors):
        places[tensor.device].append(place)
    return places


def _submit(start: Start, tensors: list[torch.Tensor]) -> tuple[Ticket, list[torch.Tensor]]:
    """Hands in tensors; also gives what is in the host's memory for them, in the same order."""
    hosts, copied = list(tensors), []
    for device, numbers in _by_device(tensors).items():
        if device.type == "cuda":
            copies, event = _stager(device).copy_out([tensors[number] for number in numbers])
            copied.append(event)
        else:
            copies = [tensors[number].contiguous() for number in numbers]
        for number, copy in zip(numbers, copies):
            hosts[number] = copy
    if not copied:
        return start([_describe(host) for host in hosts]), hosts

    def then_start() -> Ticket:
        for event in copied:
            event.synchronize()
        return start([_describe(host) for host in hosts])

    return Deferred(_thread().submit(then_start)), hosts


def _describe(tensor: torch.Tensor) -> tuple:
    """A contiguous CPU tensor; elements that the engine does not know travel as bytes."""
    code = _DTYPES.get(tensor.dtype)
    if code is None:
        return tensor.data_ptr(), _BYTES, (*tensor.shape, tensor.element_size()), tensor
    return tensor.data_ptr(), code, tensor.shape, tensor


def _new_tensor(output: _native.Output, dtype: torch.dtype) -> torch.Tensor:
    """A tensor from what the engine made."""
    shape = output.shape if dtype in _DTYPES else output.shape[:-1]
    if not output.bytes:
        return torch.empty(shape, dtype=dtype)
    return torch.utils.dlpack.from_dlpack(output.take()).view(dtype).view(shape)


class _Stager:
    """Copies one GPU's tensors to pinned memory and back."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def copy_out(self, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
        """Copies that are complete after an event."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            hosts = []
            for tensor in tensors:
                host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                hosts.append(host.copy_(tensor, non_blocking=True))
                # Its memory must not be given to others before the copy is made.
                tensor.record_stream(self._stream)
            return hosts, self._stream.record_event()

    def copy_back(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Fills tensors from host memory; the current stream waits for it."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            for tensor, host in pairs:
                tensor.copy_(host, non_blocking=True)
                tensor.record_stream(self._stream)
        here.wait_stream(self._stream)


_stagers: dict[torch.device, _Stager] = {}
_threads: list[ThreadPoolExecutor] = []


def _stager(device: torch.device) -> _Stager:
    if device not in _stagers:
        _stagers[device] = _Stager(device)
    return _stagers[device]


def _thread() -> ThreadPoolExecutor:
    """One thread, so that tensors are handed in in the order of the program."""
    if not _threads:
        _threads.append(ThreadPoolExecutor(1, thread_name_prefix="sirtaki-stage"))
    return _threads[0]
