"""Local SGD: workers step by themselves and average their weights every few steps.

Where the network is slow, or workers wait for each other more than they compute, this divides both
by the length of that window. Ordinary data parallelism may come first (post-local SGD), an outer
optimizer may step with what a window changed instead of taking the plain mean (DiLoCo), and what
was changed may travel in fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sirtaki._core import job
from sirtaki._core.objects import allgather_object
from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.torch._differences import Bytes, Halves, Whole
from sirtaki.torch.compression import Compression
from sirtaki.torch.optimizer import _Distributed, taken_over

# Type checkers see a mixin as the class that it will be part of.
Mixin: Any = torch.optim.Optimizer if TYPE_CHECKING else object

TRAVELS: dict[str, type[Whole]] = {"f32": Whole, "bf16": Halves, "int8": Bytes}
MOMENTUM = ("keep", "average")
KEY = "local_sgd"


class _Local(Mixin):
    """What is added to a distributed optimizer that steps alone between two averages."""

    def _begin(
        self, every: int, after: int, outer: Any, momentum: str, wire: str, among: ProcessSet
    ) -> None:
        self._every, self._after, self._momentum, self._wire = every, after, momentum, wire
        self._among = among
        self._steps_made, self._checked = 0, 0
        """The second is the round in which ranks have compared their settings."""
        self._hooks: list[Any]
        self._travels = TRAVELS[wire](among)
        self._whole = Whole(among)
        self._anchors: list[torch.Tensor] | None = None
        self._make_outer, self._outer = outer, None
        self._needs_anchors = outer is not None or wire != "f32"
        if after == 0:
            self._leave_lock_step()

    def _trained(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _leave_lock_step(self) -> None:
        """From now on gradients are this rank's own."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def step(self, closure: Any = None) -> Any:
        """Makes the optimizer's step; at the end of a window weights are averaged."""
        if self._steps_made == self._after and self._needs_anchors and self._anchors is None:
            self._drop_anchors()
        result = super().step(closure)
        self._steps_made += 1
        if self._steps_made == self._after:
            self._leave_lock_step()
        elif (
            self._steps_made > self._after and (self._steps_made - self._after) % self._every == 0
        ):
            self.average()
        return result

    def _drop_anchors(self) -> None:
        """Remembers the weights with which a window begins."""
        self._anchors = [
            p.detach().to(
                max(p.dtype, torch.float32, key=lambda kind: torch.finfo(kind).bits), copy=True
            )
            for p in self._trained()
        ]
        if self._make_outer is not None:
            self._outer = self._make_outer(self._anchors)

    def average(self) -> None:
        """Makes weights equal on all ranks, as at the end of a window.

        Call it on all ranks before testing or saving a model in the middle of a window.
        """
        if len(self._among.ranks) == 1 and not self._needs_anchors:
            return
        self._check_settings()
        with torch.no_grad():
            self._average_weights()
            if self._momentum == "average":
                self._whole.mean(self._averaged_state(), f"{KEY}.state")

    def _average_weights(self) -> None:
        parameters = self._trained()
        if self._anchors is None:
            self._whole.mean([p.detach() for p in parameters], f"{KEY}.weights")
            return
        changed = [anchor - p for anchor, p in zip(self._anchors, parameters)]
        self._move_anchors(self._travels.mean(changed, f"{KEY}.changes"))
        for anchor, parameter in zip(self._anchors, parameters):
            parameter.copy_(anchor)

    def _averaged_state(self) -> list[torch.Tensor]:
        """The optimizer's tensors that belong to single weights, such as momentum."""
        return [
            tensor
            for p in self._trained()
            for _, tensor in sorted(self.state.get(p, {}).items())
            if torch.is_tensor(tensor) and tensor.shape == p.shape and tensor.is_floating_point()
        ]

    def _move_anchors(self, changes: list[torch.Tensor]) -> None:
        assert self._anchors is not None
        if self._outer is None:
            torch._foreach_sub_(self._anchors, changes)
            return
        for anchor, change in zip(self._anchors, changes):
            anchor.grad = change
        self._outer.step()
        self._outer.zero_grad(set_to_none=True)

    def _check_settings(self) -> None:
        """Ranks that count differently would wait for each other, or average what does not fit."""
        if self._checked == job.round_number() or len(self._among.ranks) == 1:
            return
        settings = {
            "every": self._every,
            "after": self._after,
            "outer": self._make_outer is not None,
            "momentum": self._momentum,
            "wire": self._wire,
            "steps made": self._steps_made,
            "weights": sum(p.numel() for p in self._trained()),
        }
        everybody = allgather_object(settings, f"{KEY}.settings", self._among)
        for other, theirs in zip(self._among.ranks, everybody):
            for what, value in theirs.items():
                if value != everybody[0][what]:
                    raise ValueError(
                        f"LocalSGD: {what} is {value} on rank {other}, but {everybody[0][what]} "
                        f"on rank {self._among.ranks[0]}\n"
                        "hint: all ranks have to use the same model and settings"
                    )
        self._checked = job.round_number()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The optimizer's, with what is needed to continue in the middle of a window."""
        state = super().state_dict(*args, **kwargs)
        state[KEY] = {
            "steps": self._steps_made,
            "anchors": self._anchors,
            "outer": None if self._outer is None else self._outer.state_dict(),
            "travels": self._travels.state(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues where ``state_dict`` was taken; that of a plain optimizer starts a window."""
        rest = {key: value for key, value in state_dict.items() if key != KEY}
        super().load_state_dict(rest)
        mine = state_dict.get(KEY)
        if mine is None:
            return
        self._steps_made, self._checked = mine["steps"], 0
        if self._steps_made >= self._after:
            self._leave_lock_step()
        elif not self._hooks:
            self._register(None)
        if mine["anchors"] is not None:
            self._drop_anchors()
            for anchor, saved in zip(self._anchors or [], mine["anchors"]):
                anchor.copy_(saved)
            if self._outer is not None and mine["outer"] is not None:
                self._outer.load_state_dict(mine["outer"])
        if mine["travels"] is not None:
            self._travels.restore(mine["travels"])


def nesterov(anchors: list[torch.Tensor]) -> torch.optim.Optimizer:
    """The outer optimizer of DiLoCo, with the settings of its authors."""
    return torch.optim.SGD(anchors, lr=0.7, momentum=0.9, nesterov=True)


def LocalSGD(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    every: int = 8,
    after: int = 0,
    outer: str | Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
    momentum: str = "keep",
    wire: str = "f32",
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """The optimizer with weights averaged over all ranks every few steps instead of gradients.

    For the first ``after`` steps gradients are averaged as in ``DistributedOptimizer``; then each
    rank makes ``every`` steps by itself before weights are averaged. With ``outer``, the mean of
    what a window changed is the gradient of another optimizer: ``"nesterov"``, or a function that
    makes one for a list of tensors. ``momentum="average"`` averages the optimizer's state, too,
    which otherwise stays each rank's own. ``wire`` says how changes are sent: ``"f32"``,
    ``"bf16"``, or ``"int8"``; what rounding takes away is added to the next window.

    The result is an optimizer of the same class. ``average()`` makes weights equal in the middle
    of a window; what is no parameter, such as statistics of batch norm, is not averaged.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer = hvd.LocalSGD(optimizer, every=2, outer="nesterov")
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(4, 2)).sum().backward()
    ...     _ = optimizer.step()
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, not {every}")
    if after < 0:
        raise ValueError(f"after must not be negative, but is {after}")
    if momentum not in MOMENTUM:
        raise ValueError(f"momentum is {_one_of(MOMENTUM)}, not {momentum!r}")
    if wire not in TRAVELS:
        raise ValueError(f"wire is {_one_of(TRAVELS)}, not {wire!r}")
    if isinstance(outer, str) and outer != "nesterov":
        raise ValueError(
            f"outer is 'nesterov' or a function that makes an optimizer, not {outer!r}"
        )
    if job.is_initialized() and not process_set.included():
        raise ValueError("LocalSGD: this rank is not part of process_set")
    if isinstance(optimizer, _Distributed):
        raise ValueError(
            "LocalSGD: the optimizer already averages gradients\n"
            "hint: give LocalSGD the optimizer itself instead of DistributedOptimizer's"
        )
    kind = type(optimizer)
    made: Any = taken_over(optimizer, type(kind.__name__, (_Local, _Distributed, kind), {}))
    made._distribute(None, Compression.none, 1, Average, 1.0, None, False, process_set)
    made._begin(
        every, after, nesterov if outer == "nesterov" else outer, momentum, wire, process_set
    )
    return made


def _one_of(names: Any) -> str:
    return " or ".join(repr(name) for name in names)
