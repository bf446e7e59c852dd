"""An optimizer whose weights and state live on parameter servers.

A step pushes gradients and pulls weights; how far ranks may be apart is a choice. Servers are
those that ``sirtaki run --servers`` started, or threads of the ranks. See ``docs/server.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from sirtaki import _variables
from sirtaki._core import job
from sirtaki._core.collectives import barrier
from sirtaki._core.objects import allgather_object, broadcast_object
from sirtaki._native import ServerHead, ServerWorker, servers_beside
from sirtaki.torch.functions import broadcast_parameters

BLOCK = 64 << 10
"""Most elements of a row."""

RULES: dict[str, tuple[float, dict[str, float], int]] = {
    "sgd": (0.01, {"momentum": 0.0, "dampening": 0.0, "nesterov": 0.0, "weight_decay": 0.0}, 1),
    "adam": (0.001, {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0}, 2),
    "adamw": (0.001, {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01}, 2),
    "adagrad": (0.01, {"epsilon": 1e-10}, 1),
    "ftrl": (0.1, {"beta": 1.0, "l1": 0.0, "l2": 0.0}, 2),
}
"""Usual rate, numbers with their usual values, and how many numbers are kept for a weight."""


class ServerOptimizer(torch.optim.Optimizer):
    """Steps of a model whose weights and optimizer state live on parameter servers.

    ``rule`` is how servers change weights: ``"sgd"`` (``momentum``, ``dampening``, ``nesterov``,
    ``weight_decay``), ``"adam"`` or ``"adamw"`` (``betas``, ``eps``, ``weight_decay``),
    ``"adagrad"`` (``eps``) or ``"ftrl"`` (``beta``, ``l1``, ``l2``). ``delay`` is how many steps
    the fastest rank may be ahead of the slowest: with 0 all are in step and average their
    gradients, with ``None`` nobody waits for anybody. ``copies`` servers have each weight, so that
    one less may die at once. Servers are those of ``sirtaki run --servers``, or else ``servers``
    threads of the ranks.

    Weights begin as those of rank 0. Gradients that are sparse travel as the rows that were
    touched. ``settle()`` makes weights equal on all ranks, before a test or a checkpoint.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = hvd.ServerOptimizer(model, "adam", lr=0.01, delay=4)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(4, 2)).sum().backward()
    ...     optimizer.step()
    >>> optimizer.settle()
    """

    def __init__(  # noqa: D107
        self,
        model: torch.nn.Module,
        rule: str = "sgd",
        lr: float | None = None,
        *,
        delay: int | None = 0,
        copies: int = 1,
        servers: int = 1,
        **numbers: Any,
    ) -> None:
        self._rule, self._numbers = rule, _numbers(rule, numbers)
        lr = RULES[rule][0] if lr is None else lr
        if not lr > 0:
            raise ValueError(f"ServerOptimizer: lr must be above zero, not {lr}")
        if delay is not None and (not isinstance(delay, int) or delay < 0):
            raise ValueError(
                f"ServerOptimizer: delay is a number of steps from 0 on, or None, not {delay!r}"
            )
        engine, defaults = job.engine(), _variables.translated()
        if job.is_elastic():
            raise ValueError(
                "ServerOptimizer: workers of this job come and go, and those of parameter servers "
                "are there from the start\n"
                "hint: start it with `sirtaki run -n`, or use hvd.DistributedOptimizer"
            )
        beside = servers_beside(defaults)
        servers = beside or servers
        if not 1 <= copies <= servers:
            raise ValueError(
                f"ServerOptimizer: {copies} copies of each weight on {servers} servers\n"
                "hint: copies are from 1 to the number of servers; sirtaki run --servers, or "
                "servers=, says how many there are"
            )
        self._named = _trained(model)
        super().__init__([p for _, p in self._named], {"lr": lr})
        self._delay = delay
        settings = {"rule": rule, "delay": delay, "copies": copies, **self._numbers}
        _check_equal(settings, self._named)
        broadcast_parameters(model.state_dict(), root_rank=0)
        head = (
            ServerHead.open(engine, defaults, delay, servers, copies) if engine.rank == 0 else None
        )
        address = broadcast_object(head.address if head else None, 0, "server_optimizer.head")
        here = 0 if beside else len(range(engine.rank, servers, engine.size))
        self._worker = ServerWorker.join(engine, defaults, head, address, here)
        job.world.leaving.append(self._leave)
        for name, p in self._named:
            memory = _host(p)
            rows, width = _rows(p)
            self._worker.create(name, (rows, width), rule, self._numbers, _floats(memory))
        self._mirrors = [_host(p) for _, p in self._named]
        # Nobody pushes before all tables are there.
        barrier()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pushes this rank's gradients, and pulls weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        kept: list[torch.Tensor] = []
        gradients = []
        for name, p in self._named:
            if p.grad is None:
                continue
            rows, values = _gradient(p)
            kept.append(values)
            gradients.append((name, rows, _floats(values)))
        pulled = [
            (name, _rows(p)[0], _floats(mirror))
            for (name, p), mirror in zip(self._named, self._mirrors)
        ]
        tree = (job.rank(), job.size()) if self._delay == 0 else None
        self._worker.push_pull(float(self.param_groups[0]["lr"]), gradients, pulled, tree)
        self._take_over()
        return loss

    def settle(self) -> None:
        """Makes weights equal on all ranks, with all that was learned. All ranks call it."""
        barrier()
        for (name, _), mirror in zip(self._named, self._mirrors):
            self._worker.get(name, 0, _floats(mirror))
        self._take_over()
        # Nobody goes on before everybody has read.
        barrier()

    def _take_over(self) -> None:
        with torch.no_grad():
            for (_, p), mirror in zip(self._named, self._mirrors):
                p.copy_(mirror)

    def report(self) -> dict[str, Any]:
        """What it took this rank so far.

        ``waited`` seconds for servers and other ranks, bytes ``sent`` and ``received``, and
        ``behind``: how often the slowest rank was so many steps behind when this one read.
        """
        waited, sent, received, behind = self._worker.report()
        return {"waited": waited, "sent": sent, "received": received, "behind": behind}

    def state_dict(self) -> dict[str, Any]:
        """The rate, and what servers keep for each weight; after ``settle()`` on all ranks."""
        slots = {}
        for name, p in self._named:
            kept = [torch.empty(p.shape) for _ in range(RULES[self._rule][2])]
            for number, slot in enumerate(kept, 1):
                self._worker.get(name, number, _floats(slot))
            slots[name] = {"changes": self._worker.changes(name), "slots": kept}
        return {"lr": self.param_groups[0]["lr"], "rule": self._rule, "state": slots}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues where ``state_dict`` was taken, on any number of servers. All ranks call it,
        after the model has its weights."""
        if state_dict.get("rule") != self._rule:
            raise ValueError(
                f"ServerOptimizer: the state is that of {state_dict.get('rule')!r}, and servers "
                f"change weights by {self._rule!r}"
            )
        state = state_dict["state"]
        missing = [name for name, _ in self._named if name not in state]
        if missing:
            raise ValueError(f"ServerOptimizer: the state has nothing about {missing[0]!r}")
        self.param_groups[0]["lr"] = state_dict["lr"]
        barrier()
        if job.rank() == 0:
            for name, p in self._named:
                changes, weights = state[name]["changes"], _host(p)
                self._worker.put(name, 0, changes, _floats(weights))
                for number, slot in enumerate(state[name]["slots"], 1):
                    values = slot.detach().to("cpu", torch.float32).contiguous()
                    self._worker.put(name, number, changes, _floats(values))
        self.settle()

    def _leave(self) -> None:
        """At the end of the job; a rank that has failed does not wait for the others."""
        job.world.leaving.remove(self._leave)
        self._worker.leave(not hasattr(sys, "last_value"))


def _numbers(rule: str, given: dict[str, Any]) -> dict[str, float]:
    """The numbers of a rule, by the names of PyTorch's optimizers."""
    if rule not in RULES:
        raise ValueError(f"ServerOptimizer: rule is one of {', '.join(RULES)}, not {rule!r}")
    numbers = dict(RULES[rule][1])
    given = dict(given)
    if "betas" in given and "beta_1" in numbers:
        given["beta_1"], given["beta_2"] = given.pop("betas")
    if "eps" in given and "epsilon" in numbers:
        given["epsilon"] = given.pop("eps")
    for name, value in given.items():
        if name not in numbers:
            raise ValueError(
                f"ServerOptimizer: {rule} has no {name}\n"
                f"hint: it has {', '.join(numbers) or 'no numbers'}"
            )
        numbers[name] = float(value)
        if numbers[name] < 0:
            raise ValueError(f"ServerOptimizer: {name} must not be negative, but is {value}")
    return numbers


def _trained(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    if not isinstance(model, torch.nn.Module):
        raise ValueError(
            f"ServerOptimizer: model is a torch.nn.Module, not {type(model).__name__}\n"
            "hint: give it the model itself instead of its parameters"
        )
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise ValueError("ServerOptimizer: the model has no parameters to train")
    for name, p in named:
        if p.dtype != torch.float32:
            raise ValueError(
                f"ServerOptimizer: {name} is of type {p.dtype}, and servers have float32\n"
                "hint: keep weights in float32; autocast computes in other types"
            )
    return named


def _check_equal(settings: dict[str, Any], named: list[tuple[str, torch.nn.Parameter]]) -> None:
    """Ranks with other settings or models would wait for each other in vain."""
    settings["parameters"] = [(name, tuple(p.shape)) for name, p in named]
    everybody = allgather_object(settings, "server_optimizer.settings")
    for rank, theirs in enumerate(everybody):
        for what, value in everybody[0].items():
            if theirs[what] != value:
                raise ValueError(
                    f"ServerOptimizer: {what} is {theirs[what]} on rank {rank}, but {value} on "
                    "rank 0\nhint: all ranks have to use the same model and settings"
                )


def _rows(p: torch.Tensor) -> tuple[int, int]:
    """A row is what the first index selects, unless that is too large."""
    first = p.shape[0] if p.dim() else 1
    width = p.numel() // max(first, 1)
    return (first, width) if 1 <= width <= BLOCK else (p.numel(), 1)


def _host(p: torch.Tensor) -> torch.Tensor:
    """A copy in this process's memory."""
    return p.detach().to("cpu", torch.float32, copy=True).contiguous()


def _gradient(p: torch.nn.Parameter) -> tuple[list[int] | None, torch.Tensor]:
    """The rows that were touched, if not all were, and their numbers."""
    assert p.grad is not None
    gradient = p.grad.detach()
    if gradient.is_sparse and gradient.sparse_dim() == 1 and _rows(p)[0] == p.shape[0]:
        gradient = gradient.coalesce()
        values = gradient.values().to("cpu", torch.float32).contiguous()
        return gradient.indices()[0].tolist(), values
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    return None, gradient.to("cpu", torch.float32).contiguous()


def _floats(memory: torch.Tensor) -> tuple[int, int]:
    return memory.data_ptr(), memory.numel()
