"""The compiled part: conversions between Python and the engine."""

import os
from collections.abc import Sequence
from typing import Any, final

from typing_extensions import TypeAlias

__all__ = [
    "Completions",
    "Engine",
    "HandIn",
    "Output",
    "Phase",
    "Thread",
    "Ticket",
    "command",
    "dtypes",
    "main",
    "nccl_version",
    "receive",
    "send",
    "tensorflow_ops",
    "tensorflow_ready",
    "xla_handlers",
]

_Stream: TypeAlias = tuple[int, int]
"""The number of a GPU, and what its driver calls a stream."""

_Described: TypeAlias = tuple[int, int, Sequence[int], Any, _Stream | None]
"""Address, code of the element type, shape, what keeps the memory alive, and for a GPU the
stream that computes the elements."""

_Name: TypeAlias = str | tuple[str, str]
"""A name, or a name made from a call and its size together with that call."""

def main() -> int: ...
def command(arguments: Sequence[str]) -> int: ...
def dtypes() -> dict[str, int]: ...
def nccl_version() -> int: ...
def send(engine: Engine, label: str, tensor: _Described, to: int, tag: int) -> Ticket: ...
def receive(
    engine: Engine, label: str, tensor: _Described, source: int | None, tag: int
) -> Ticket: ...
def tensorflow_ops(path: str) -> int: ...
def tensorflow_ready(in_main: bool) -> None: ...
def xla_handlers() -> tuple[Any, Any]: ...

@final
class Output:
    shape: list[int]
    rows: list[int] | None
    bytes: int
    address: int
    def take(self) -> Any: ...
    def copy_to(self, address: int, stream: _Stream) -> None: ...

@final
class Thread:
    def __new__(cls) -> Thread: ...

@final
class HandIn:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
    def end(self) -> None: ...

@final
class Completions:
    def __new__(cls) -> Completions: ...
    def put(self, number: int) -> None: ...
    def next(self) -> int | None: ...
    def hand_in(self, number: int) -> HandIn | None: ...
    def close(self) -> None: ...

@final
class Ticket:
    def poll(self) -> bool: ...
    def wait(self, streams: Sequence[_Stream] = ...) -> Any: ...
    def notify(self, completions: Completions, number: int) -> None: ...

@final
class Phase:
    def end(self) -> None: ...

@final
class Engine:
    rank: int
    size: int
    local: tuple[int, int]
    cross: tuple[int, int]
    homogeneous: bool
    back_end: str
    device_way: str | None
    @staticmethod
    def join_job(defaults: dict[str, str], round: int, timeout: float | None = None) -> Engine: ...
    @staticmethod
    def meet(
        store: Any,
        place: tuple[int, int],
        whole: bool,
        defaults: dict[str, str],
        timeout: float | None = None,
        world: Engine | None = None,
    ) -> Engine: ...
    def publish(self, number: int) -> None: ...
    def seal(self, parts: Sequence[bytes]) -> bytes: ...
    def is_sealed(self, parts: Sequence[bytes], code: bytes) -> bool: ...
    def all_reduce(
        self,
        name: _Name,
        tensors: Sequence[_Described],
        op: str,
        before: float = 1.0,
        after: float = 1.0,
        wire: str | None = None,
    ) -> Ticket: ...
    def all_reduce_each(
        self,
        names: Sequence[str],
        tensors: Sequence[_Described],
        op: str,
        before: float = 1.0,
        after: float = 1.0,
        wire: str | None = None,
    ) -> Ticket: ...
    def all_gather(
        self,
        name: _Name,
        tensors: Sequence[_Described],
        of_all: bool = True,
        room: Sequence[Sequence[int]] = ...,
    ) -> Ticket: ...
    def broadcast(self, name: _Name, tensors: Sequence[_Described], root: int) -> Ticket: ...
    def all_to_all(
        self,
        name: _Name,
        tensor: _Described,
        splits: Sequence[int],
        room: Sequence[int] = ...,
    ) -> Ticket: ...
    def reduce_scatter(
        self,
        name: _Name,
        tensors: Sequence[_Described],
        op: str,
        before: float = 1.0,
        after: float = 1.0,
    ) -> Ticket: ...
    def barrier(self, name: _Name) -> Ticket: ...
    def hand_in(self, thread: Thread) -> HandIn: ...
    def join(self) -> Ticket: ...
    def process_set(self, name: str, members: Sequence[int]) -> Ticket: ...
    def start_timeline(self, path: str | os.PathLike[str]) -> None: ...
    def stop_timeline(self) -> None: ...
    def progress(
        self,
        step: int,
        steps: int | None,
        epoch: float | None,
        epochs: int | None,
        samples: int | None,
        learned: Sequence[float | None],
    ) -> None: ...
    def describe(self, settings: dict[str, str]) -> None: ...
    def phase(self, name: str) -> Phase: ...
    def close(self) -> None: ...
