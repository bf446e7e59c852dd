"""PyTorch's tensors for the engine and back.

Memory of CPU tensors is used where it lies. Tensors of a GPU travel through pinned memory of the
host: copied on a stream of their own, so that neither the program nor its stream waits, and handed
in by a thread as soon as the copy is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable

import torch

from sirtaki import _native

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

Start = Callable[[list], _native.Ticket]
"""Hands described tensors to the engine."""


class Handle:
    """What was handed in and is not waited for yet."""

    def __init__(self, ticket: Any, finish: Callable[[Any], Any]) -> None:
        self._ticket = ticket
        self._finish = finish

    def poll(self) -> bool:
        """Whether it is done, well or badly."""
        return self._ticket is None or self._ticket.poll()

    def wait(self) -> Any:
        """The result; ``None`` for whoever has waited before."""
        if self._ticket is None:
            return None
        try:
            result = self._ticket.wait()
        except RuntimeError:
            self._ticket = self._finish = None
            raise
        finish = self._finish
        self._ticket = self._finish = None
        return finish(result)

    def then(self, result: Callable[[], Any]) -> Handle:
        """The same handle, with another result."""
        finish = self._finish
        self._finish = lambda outcome: (finish(outcome), result())[1]
        return self


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


def hand_in(start: Start, tensors: Sequence[torch.Tensor], moves: bool) -> Handle:
    """Hands in tensors that will be changed where they are, and returns them as a list.

    ``moves`` says that elements are moved and not reduced, so that every type will do.
    """
    tensors = [tensor.detach() for tensor in tensors]
    if tensors and tensors[0].is_cuda:
        return _stager(tensors[0].device).in_place(start, tensors)
    works = [tensor.contiguous() for tensor in tensors]
    ticket = start([_describe(work) for work in works])

    def finish(_: Any) -> list[torch.Tensor]:
        for tensor, work in zip(tensors, works):
            if work.data_ptr() != tensor.data_ptr():
                tensor.copy_(work)
        return tensors

    return Handle(ticket, finish)


def hand_in_for_new(
    start: Start, tensors: Sequence[torch.Tensor], build: Callable[[list], Any]
) -> Handle:
    """Hands in tensors of which new ones will come: ``build`` gets these and the rows of each."""
    tensors = [tensor.detach() for tensor in tensors]
    device = tensors[0].device if tensors else torch.device("cpu")
    dtypes = [tensor.dtype for tensor in tensors]

    def finish(outputs: list) -> Any:
        made = [_made(output, dtype) for output, dtype in zip(outputs, dtypes)]
        return build([(tensor.to(device), output.rows) for tensor, output in zip(made, outputs)])

    if device.type == "cuda":
        return _stager(device).for_new(start, tensors, finish)
    ticket = start([_describe(tensor.contiguous()) for tensor in tensors])
    return Handle(ticket, finish)


def _describe(tensor: torch.Tensor) -> tuple:
    """A contiguous CPU tensor; elements that the engine does not know travel as bytes."""
    code = _DTYPES.get(tensor.dtype)
    if code is None:
        return tensor.data_ptr(), _BYTES, (*tensor.shape, tensor.element_size()), tensor
    return tensor.data_ptr(), code, tensor.shape, tensor


def _made(output: _native.Output, dtype: torch.dtype) -> torch.Tensor:
    """A new tensor from what the engine made."""
    shape = output.shape if dtype in _DTYPES else output.shape[:-1]
    if not output.bytes:
        return torch.empty(shape, dtype=dtype)
    return torch.utils.dlpack.from_dlpack(output.take()).view(dtype).view(shape)


class _Later:
    """A ticket that there will be once the thread has handed in the copies."""

    def __init__(self, future: Future) -> None:
        self._future = future

    def poll(self) -> bool:
        return self._future.done() and (
            self._future.exception() is not None or self._future.result().poll()
        )

    def wait(self) -> Any:
        return self._future.result().wait()


class _Stager:
    """The way of one GPU's tensors through pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # One thread, so that tensors are handed in in the order of the program.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sirtaki-stage")

    def in_place(self, start: Start, tensors: list[torch.Tensor]) -> Handle:
        ticket, hosts = self._copy_out(start, tensors)

        def finish(_: Any) -> list[torch.Tensor]:
            here = torch.cuda.current_stream(self._device)
            self._stream.wait_stream(here)
            with torch.cuda.stream(self._stream):
                for tensor, host in zip(tensors, hosts):
                    tensor.copy_(host, non_blocking=True)
                    tensor.record_stream(self._stream)
            here.wait_stream(self._stream)
            return tensors

        return Handle(ticket, finish)

    def for_new(
        self, start: Start, tensors: list[torch.Tensor], finish: Callable[[Any], Any]
    ) -> Handle:
        ticket, _ = self._copy_out(start, tensors)
        return Handle(ticket, finish)

    def _copy_out(
        self, start: Start, tensors: list[torch.Tensor]
    ) -> tuple[_Later, list[torch.Tensor]]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            hosts = []
            for tensor in tensors:
                host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                hosts.append(host.copy_(tensor, non_blocking=True))
                # Its memory must not be given to others before the copy is made.
                tensor.record_stream(self._stream)
            copied = self._stream.record_event()

        def then_start() -> _native.Ticket:
            copied.synchronize()
            return start([_describe(host) for host in hosts])

        return _Later(self._thread.submit(then_start)), hosts


_stagers: dict[torch.device, _Stager] = {}


def _stager(device: torch.device) -> _Stager:
    if device not in _stagers:
        _stagers[device] = _Stager(device)
    return _stagers[device]
