"""Sending and receiving: from the first message on, two ranks form a small group.

Meeting needs both ranks, so it happens in a thread: a rank that only starts a message does not
wait for the other one. A message is a broadcast in that group.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any, Callable

import torch

from sirtaki._core.handle import Deferred
from sirtaki._native import Engine, Thread
from sirtaki.torch import _memory
from sirtaki.torch.distributed.lane import Lane
from sirtaki.torch.distributed.names import MESSAGES, Names
from sirtaki.torch.distributed.work import Work


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
    """The pairs that a rank is in."""

    def __init__(  # noqa: D107
        self,
        rank: int,
        meeting: Callable[[str, int], Any],
        defaults: dict[str, str],
        timeout: float,
        world: Callable[[], Engine | None],
    ) -> None:
        self._rank, self._meeting, self._world = rank, meeting, world
        self._defaults, self._timeout = defaults, timeout
        self._lanes: dict[int, Lane] = {}

    def send(self, tensor: torch.Tensor, other: int, tag: int) -> Work:
        """Sends a tensor."""
        return self._message(tensor, other, tag, sender=self._rank)

    def receive(self, tensor: torch.Tensor, other: int, tag: int) -> Work:
        """Replaces a tensor by one that was sent."""
        return self._message(tensor, other, tag, sender=other)

    def _message(self, tensor: torch.Tensor, other: int, tag: int, sender: int) -> Work:
        _memory.check(tensor, moves=True)
        if other == self._rank:
            raise ValueError(f"rank {other} cannot send to itself\nhint: use copy_")
        root = int(sender > min(other, self._rank))

        def start(engine: Any, name: Any) -> Any:
            hand_in = partial(_broadcast, engine, name, root)
            return _memory.hand_in(hand_in, [tensor])

        devices = [tensor.device] if tensor.is_cuda else []
        return self._lane(other).submit(f"message.{root}.{tag}", None, devices, start)

    def _lane(self, other: int) -> Lane:
        if other not in self._lanes:
            first, second = sorted((other, self._rank))
            place = int(self._rank == second)
            meeting = self._meeting(f"pair/{first}/{second}", place)
            limits = (self._defaults, self._timeout)
            meet = partial(Engine.meet, meeting, (place, 2), False, *limits, self._world())
            self._lanes[other] = Lane(
                _WhenMet(meet), owned=True, names=Names(MESSAGES), ordered=False
            )
        return self._lanes[other]

    def close(self) -> None:
        """Ends all of them."""
        for lane in self._lanes.values():
            lane.close()


def _broadcast(engine: Any, name: Any, root: int, described: list) -> Any:
    return engine.broadcast(name, described, root)
