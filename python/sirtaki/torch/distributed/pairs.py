"""Sending and receiving: messages of the group's engine.

The engine's messages travel between the memories of hosts. Tensors of GPUs go from one GPU to the
other without passing the host where the machine can do that, so for these two ranks form a small
group of their own, in which a message is a broadcast. Meeting needs both ranks, so it happens in a
thread: a rank that only starts a message does not wait for the other one.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable

import torch

from sirtaki import _native
from sirtaki._core.handle import Deferred, Handle
from sirtaki._native import Engine, Thread
from sirtaki.torch import _memory
from sirtaki.torch.distributed.lane import Lane
from sirtaki.torch.distributed.names import MESSAGES, Names
from sirtaki.torch.distributed.work import Work

_LABEL = "distributed.message"
_TAG_BITS = 32
"""What PyTorch's tags have. Above them is the number of the group of all ranks, so that a message
that nobody received before it was destroyed is not received in the next one."""


class _WhenMet:
    """The engine of two ranks that may still be meeting; requests wait for it in order."""

    def __init__(self, meet: Callable[[], Engine]) -> None:
        self._met: Future = Future()
        threading.Thread(target=self._meet, args=(meet,), name="sirtaki-pair", daemon=True).start()

    def _meet(self, meet: Callable[[], Engine]) -> None:
        try:
            engine = meet()
        except BaseException as error:
            self._met.set_exception(error)
            return
        self._met.set_result(engine)

    def broadcast(self, name: Any, described: list, root: int) -> Any:
        """As the engine's; what is submitted before the ranks have met is passed on then."""
        ticket: Future = Future()
        caller = Thread()

        def hand_in(met: Future) -> None:
            try:
                engine = met.result()
                with engine.hand_in(caller):
                    ticket.set_result(engine.broadcast(name, described, root))
            except BaseException as error:
                ticket.set_exception(error)

        if self._met.done():
            return self._met.result().broadcast(name, described, root)
        self._met.add_done_callback(hand_in)
        return Deferred(ticket)

    def close(self) -> None:
        """Closes the engine as soon as it exists."""
        self._met.add_done_callback(lambda met: None if met.exception() else met.result().close())


class Pairs:
    """The messages of a rank in a group of the ``world``-th group of all ranks."""

    def __init__(  # noqa: D107
        self, rank: int, world: int, lane: Lane, meet: Callable[[int], Engine]
    ) -> None:
        self._rank, self._lane, self._meet = rank, lane, meet
        self._first_tag = world << _TAG_BITS
        self._gpu_lanes: dict[int, Lane] = {}

    def send(self, tensor: torch.Tensor, other: int, tag: int) -> Work:
        """Sends a tensor."""
        self._check(tensor, other)
        if tensor.is_cuda:
            return self._between_gpus(tensor, other, tag, sender=self._rank)

        number = self._tag(tag)

        def start(engine: Any, name: Any) -> Any:
            def hand_in(described: list) -> Any:
                return _native.send(engine, _LABEL, _flat(described[0]), other, number)

            return _memory.hand_in(hand_in, [tensor])

        return self._lane.submit("message", None, [], start)

    def receive(self, tensor: torch.Tensor, other: int | None, tag: int) -> Work:
        """Replaces a tensor by one that was sent, by any rank if none is given."""
        self._check(tensor, other)
        if tensor.is_cuda:
            if other is None:
                raise NotImplementedError(
                    "a tensor of a GPU cannot be received from just any rank\n"
                    "hint: say which, with src, or receive into a tensor of the host"
                )
            return self._between_gpus(tensor, other, tag, sender=other)
        source: list[int] = []
        number = self._tag(tag)

        def start(engine: Any, name: Any) -> Any:
            staged = _memory.Staged([tensor])
            ticket = _native.receive(engine, _LABEL, _flat(staged.describe()[0]), other, number)

            def finish(sender: int) -> list[torch.Tensor]:
                source.append(sender)
                return staged.finish(sender)

            return Handle(ticket, finish)

        work = self._lane.submit("message", None, [], start)
        work.source = source
        return work

    def _tag(self, tag: int) -> int:
        return self._first_tag + tag % (1 << _TAG_BITS)

    def _check(self, tensor: torch.Tensor, other: int | None) -> None:
        _memory.check(tensor, moves=True)
        if other == self._rank:
            raise ValueError(f"rank {other} cannot send to itself\nhint: use copy_")

    def _between_gpus(self, tensor: torch.Tensor, other: int, tag: int, sender: int) -> Work:
        root = int(sender > min(other, self._rank))

        def start(engine: Any, name: Any) -> Any:
            return _memory.hand_in(partial(_broadcast, engine, name, root), [tensor])

        if other not in self._gpu_lanes:
            engine = _WhenMet(partial(self._meet, other))
            self._gpu_lanes[other] = Lane(engine, True, Names(MESSAGES), ordered=False)
        lane = self._gpu_lanes[other]
        return lane.submit(f"message.{root}.{tag}", None, [tensor.device], start)

    def close(self) -> None:
        """Ends all of them."""
        for lane in (self._lane, *self._gpu_lanes.values()):
            lane.close()


def _flat(described: tuple) -> tuple:
    """The same memory in one dimension: as with other back ends, only sizes have to agree."""
    address, code, shape, owner, stream = described
    return address, code, (math.prod(shape),), owner, stream


def _broadcast(engine: Any, name: Any, root: int, described: list) -> Any:
    return engine.broadcast(name, described, root)
