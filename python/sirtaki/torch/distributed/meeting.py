"""Which ranks there are, and the engine that connects those of a group.

The group of all ranks is the job that a launcher started, with everything that belongs to it:
timeline, reports, messages about a rank's end. Without a launcher, as when a script starts its
processes itself, and for groups of some ranks, which PyTorch does not announce to the others,
ranks meet in the store that PyTorch has for them. Anyone can read and write that store, so the
secret with which ranks of a group authenticate each other is derived from the secret of the whole
job.
"""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist

from sirtaki import _variables
from sirtaki._core import job
from sirtaki._errors import Error
from sirtaki._native import Engine
from sirtaki.torch.distributed.group import Group
from sirtaki.torch.distributed.lane import Lane
from sirtaki.torch.distributed.names import COLLECTIVES, MESSAGES, Names
from sirtaki.torch.distributed.pairs import Pairs
from sirtaki.torch.distributed.place import Place
from sirtaki.torch.functions import allgather_object, broadcast_object

LONGEST_PAUSE = 0.02
"""Seconds between two queries of a store."""

TAKES_LISTENERS = "master_listen_fd" in (dist.TCPStore.__init__.__doc__ or "")
"""Whether PyTorch's store can be told where to listen; older versions listen everywhere."""


class Meeting:
    """A PyTorch store with the interface that the engine expects.

    Keys of an earlier meeting may still be in the store, so every rank counts two things: how
    often there was a group of all ranks, within which PyTorch's names of groups mean the same
    ranks, and how often this rank has come.
    """

    worlds = 0
    world: Engine | None = None
    """The engine of all ranks, once there is a group of all of them."""

    def __init__(self, store: Any, name: str, rank: int) -> None:  # noqa: D107
        self._store = store
        self._prefix = f"sirtaki/{self.worlds}/{name}/"
        self._prefix += f"{self.add(f'came/{rank}', 1)}/"

    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
        self._store.set(self._prefix + key, value)
        self.add(f"{key}/there", 1)

    def wait(self, key: str, seconds: float) -> bytes | None:
        """The value of a key once it has one; Ctrl-C ends the wait."""
        deadline, pause = time.monotonic() + seconds, 1e-4
        # A counter, because that is what stores of all versions can read without waiting.
        while not self.add(f"{key}/there", 0):
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return self._store.get(self._prefix + key)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter."""
        return self._store.add(self._prefix + key, amount)


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Group:
    """The process group of ``size`` ranks that share a store."""
    whole, limits = not dist.is_initialized(), _limits(timeout)
    seconds = timeout.total_seconds()
    Meeting.worlds += whole
    place = Place(
        rank,
        size,
        store,
        Meeting.worlds,
        meeting=lambda name: Meeting(store, name, rank),
        split=partial(_split, store, rank, timeout),
    )

    def meet(other: int) -> Engine:
        first, second = sorted((other, rank))
        two = Meeting(store, f"pair/{first}/{second}", int(rank == second))
        return Engine.meet(two, (int(rank == second), 2), False, limits, seconds, Meeting.world)

    def group(engine: Engine, owned: bool) -> Group:
        messages = Lane(engine, False, Names(MESSAGES), ordered=False)
        lane = Lane(engine, owned, Names(COLLECTIVES), ordered=True)
        return Group(place, lane, Pairs(rank, Meeting.worlds - 1, messages, meet))

    if whole:
        job.start(limits, seconds)
        if (job.rank(), job.size()) == (rank, size):
            Meeting.world = job.engine()
            return group(job.engine(), owned=False)
        if job.size() > 1:
            raise Error(
                f"init_process_group says rank {rank} of {size}, but the launcher says rank "
                f"{job.rank()} of {job.size()}\n"
                "hint: leave out rank and world_size, or start one process per rank"
            )
    meeting, parent = Meeting(store, "group", rank), None if whole else Meeting.world
    engine = Engine.meet(meeting, (rank, size), whole, limits, seconds, parent)
    if whole:
        Meeting.world = engine
    return group(engine, owned=True)


def _split(
    store: Any,
    rank: int,
    usual: timedelta,
    ranks: list[int],
    name: str,
    timeout: timedelta | None,
) -> Group:
    """The group of some of the ranks that share a store, in this order."""
    part = dist.PrefixStore(f"split/{name}", store)
    return create(part, ranks.index(rank), len(ranks), timeout or usual)


def _limits(timeout: timedelta) -> dict[str, str]:
    """Variables that limit how long ranks wait for others; Horovod's take precedence."""
    return {"SIRTAKI_HANG_TIMEOUT": f"{timeout.total_seconds():f}", **_variables.translated()}


def serve_env() -> None:
    """Makes ``env://``, the default, work if no launcher has set PyTorch's variables."""
    # By its path: the package has a function of the same name.
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    usual = handlers["env"]

    def handler(url: str, timeout: timedelta = dist.default_pg_timeout, **kwargs: Any) -> Iterator:
        given = {name.upper(): value for name, value in parse_qsl(urlparse(url).query)}
        given = {name: value for name, value in given.items() if value != "-1"}
        needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        place = {name: given.get(name) or os.environ.get(name) for name in needed}
        if all(place.values()):
            return _on_one_network(place, timeout, usual(url, timeout=timeout, **kwargs))
        return _meet_by_job(given, timeout)

    handlers["env"] = handler


def _on_one_network(place: dict[str, Any], timeout: timedelta, usual: Iterator) -> Iterator:
    """As PyTorch does, but the store listens only on the address that ranks use, if it is one.

    What a host's name means may differ between hosts, so for a name the store listens everywhere.
    """
    serving = None
    own = place["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if own and TAKES_LISTENERS and _address(place["MASTER_ADDR"]) is not None:
        # A store that still exists on the same port, as after destroy_process_group, is used.
        # An address that is translated to one of this host's, but is not one, cannot be listened
        # on.
        with contextlib.suppress(OSError):
            serving = _serve(place["MASTER_ADDR"], int(place["MASTER_PORT"]), timeout)
    yield from usual
    del serving


def _address(host: str) -> Any:
    """The address, if ``host`` is one and not a name."""
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None


def _serve(host: str, port: int, timeout: timedelta) -> Any:
    """A PyTorch store that listens only on ``host``; by default it listens everywhere."""
    options: dict[str, Any] = {"wait_for_workers": False, "multi_tenant": True}
    if TAKES_LISTENERS:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as listener:
            port = listener.getsockname()[1]
            options["master_listen_fd"] = os.dup(listener.fileno())
    return dist.TCPStore(host, port, None, True, timeout, **options)


def _meet_by_job(given: dict[str, str], timeout: timedelta) -> Iterator:
    """Rank, size and a store from the job that this process was started for."""
    job.start(_limits(timeout), timeout.total_seconds())
    place = {"RANK": job.rank(), "WORLD_SIZE": job.size()}
    for name, value in place.items():
        said = given.get(name) or os.environ.get(name)
        if said and said != str(value):
            raise Error(
                f"{name} is {said}, but the launcher says {value}, and MASTER_ADDR and "
                "MASTER_PORT, by which ranks could meet otherwise, are not set\n"
                "hint: leave out rank and world_size, or set all of PyTorch's variables"
            )
    rank, size = job.rank(), job.size()
    store, place_of_store = None, None
    host = "127.0.0.1" if job.cross_size() == 1 else _agree_on_host()
    if rank == 0:
        with contextlib.suppress(OSError):
            store = _serve(host, 0, timeout) if _address(host) is not None else None
        if store is None:
            host = socket.gethostname()
            store = dist.TCPStore(host, 0, size, True, timeout, wait_for_workers=False)
        place_of_store = (host, store.port)
    host, port = broadcast_object(place_of_store, 0, name="distributed.store")
    if store is None:
        store = dist.TCPStore(host, port, size, False, timeout)
    yield store, rank, size
    raise RuntimeError("a job that has started cannot be joined again")


def _agree_on_host() -> str:
    """Where all ranks can reach rank 0: the address by which the other hosts know it, or its name
    if they know different ones."""
    name = broadcast_object(socket.gethostname(), 0, name="distributed.host")
    here = job.cross_rank()
    known = allgather_object((here, _resolve(name)), name="distributed.address")
    elsewhere = {address for host, address in known if host != known[0][0]}
    address = elsewhere.pop() if len(elsewhere) == 1 else None
    return address if address and not ipaddress.ip_address(address).is_loopback else name


def _resolve(name: str) -> str | None:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    return str(found[0][4][0])
