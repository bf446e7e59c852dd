"""What a framework supplies: how its tensors are passed to the engine and back.

A tensor is anything with ``shape`` whose rows can be sliced, and that ``reshape`` can turn from a
number into a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Protocol

from sirtaki._core.handle import Handle, Streams

Tensors = Sequence[Any]

Described = tuple
"""Address, code of the element type, shape, what keeps the memory alive, and the stream of a GPU
that computes the elements, or ``None``."""

Start = Callable[[list[Described]], Any]
"""Passes described tensors to the engine and returns its ticket."""


class Staged(Protocol):
    """Tensors that the engine works on, in their own memory or in copies."""

    def describe(self) -> list[Described]:
        """What the engine has to know of each; the memory must be contiguous."""

    def streams(self) -> Streams:
        """The streams of GPUs that have to wait for the result; none for tensors on the host."""

    def finish(self, outcome: Any) -> list[Any]:
        """The tensors that were staged, now with the engine's results."""

    def adopt(self, outputs: list[Any]) -> list[Any]:
        """New tensors, like those that were staged, from what the engine made of each."""


class Adapter(Protocol):
    """What the collectives need to know about a framework."""

    def check(self, tensor: Any, moves: bool) -> None:
        """Raises an error for an unsuitable tensor, before other ranks are involved.

        With ``moves``, elements are only moved, so that every type will do.
        """

    def copied(self, tensor: Any) -> Any:
        """A contiguous tensor with the same elements, for a result that replaces them."""

    def is_single(self, tensor: Any) -> bool:
        """Whether its elements have at most single precision; factors then do, too."""

    def stage(self, tensors: Tensors) -> Staged:
        """Prepares tensors for the engine."""

    def splits(self, given: Any) -> list[int] | None:
        """The numbers in what a user gave as splits; ``None`` for equal splits."""

    def counts(self, rows: list[int], given: Any) -> Any:
        """How many rows came from each rank, as a tensor like the splits that were given."""


def hand_in(adapter: Adapter, start: Start, tensors: Tensors) -> Handle:
    """Submits tensors that will be changed in place; the result is a list of them."""
    staged = adapter.stage(tensors)
    return Handle(start(staged.describe()), staged.finish, staged.streams)


def hand_in_for_new(
    adapter: Adapter, start: Start, tensors: Tensors, build: Callable[[list], Any]
) -> Handle:
    """Submits tensors from which new ones result: ``build`` gets these and the rows of each."""
    staged = adapter.stage(tensors)
    ticket = start(staged.describe())

    def finish(outputs: list) -> Any:
        rows = [output.rows for output in outputs]
        return build(list(zip(staged.adopt(outputs), rows)))

    return Handle(ticket, finish, staged.streams)
