"""``DistributedOptimizer`` with ``op=Adasum``: steps are combined, not gradients.

Every rank makes its own step; the changes are added adaptively, so that steps in the same
direction are averaged and those in different directions are summed.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import Any

import torch

from sirtaki import _progress
from sirtaki._core.operations import Adasum
from sirtaki._core.process_sets import global_process_set
from sirtaki._errors import Error
from sirtaki.torch._hooks import when_accumulated
from sirtaki.torch._submit import reduce_in_place
from sirtaki.torch.optimizer import TOO_EARLY, TOO_OFTEN, Mixin, taken_over


class _AdasumOptimizer(Mixin):
    """What is added to a user's optimizer."""

    def _distribute(self, names: dict[torch.Tensor, str], compression: Any, passes: int) -> None:
        self._parameter_names, self._compression = names, compression
        self.backward_passes_per_step = passes
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self._waiting = dict.fromkeys(parameters, passes)
        self._in_flight: dict[torch.Tensor, tuple[Any, Any]] = {}
        """What was submitted: a handle, and a function that takes over its result."""
        self._steps = 0
        self._hooks = [when_accumulated(p, self._accumulated) for p in parameters]

    def _accumulated(self, parameter: torch.Tensor) -> None:
        if self._waiting[parameter] <= 0:
            raise AssertionError(TOO_OFTEN)
        self._waiting[parameter] -= 1
        if self._waiting[parameter] == 0:
            self._start_reduction(parameter)

    def _start_reduction(self, parameter: torch.Tensor) -> None:
        """Makes a step with this parameter alone and submits the change."""
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        start = parameter.detach().clone()
        everything = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            group["params"] = [p for p in group["params"] if p is parameter]
        try:
            super().step()
        finally:
            for group, parameters in zip(self.param_groups, everything):
                group["params"] = parameters
        change = parameter.detach() - start
        small, ctx = self._compression.compress(change)
        # Adasum's dot products need the range of single precision.
        work = small.to(torch.float32) if small.dtype in (torch.float16, torch.bfloat16) else small
        name = self._parameter_names[parameter]
        handle = reduce_in_place([work], name, Adasum, (1.0, 1.0), global_process_set)

        def take_over(reduced: torch.Tensor) -> None:
            combined = self._compression.decompress(reduced.to(small.dtype), ctx)
            with torch.no_grad():
                parameter.copy_(start.add_(combined))

        self._in_flight[parameter] = (handle, take_over)

    def synchronize(self) -> None:
        """Does nothing: ``step`` waits."""

    @contextmanager
    def skip_synchronize(self) -> Any:
        """Not possible here."""
        raise AssertionError("skipping synchronization is not supported with Adasum")
        yield

    def step(self, closure: Any = None) -> Any:
        """Waits until the changes of all ranks are combined."""
        loss = closure() if closure is not None else None
        for parameter in self._waiting:
            if parameter not in self._in_flight:
                self._start_reduction(parameter)
        in_flight, self._in_flight = self._in_flight, {}
        for handle, take_over in in_flight.values():
            take_over(handle.wait()[0])
        self._waiting = dict.fromkeys(self._waiting, self.backward_passes_per_step)
        self._steps += 1
        _progress.count(self._steps)
        return loss

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own, but not while changes are being reduced."""
        if self._in_flight:
            raise AssertionError(TOO_EARLY)
        super().zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes after how many backward passes a step is made."""
        self.backward_passes_per_step = passes
        self._waiting = dict.fromkeys(self._waiting, passes)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own; changes that are being reduced are discarded."""
        in_flight, self._in_flight = self._in_flight, {}
        for handle, _ in in_flight.values():
            with suppress(Error):
                handle.wait()
        self._waiting = dict.fromkeys(self._waiting, self.backward_passes_per_step)
        super().load_state_dict(*args, **kwargs)


def adasum_optimizer(
    optimizer: torch.optim.Optimizer, names: dict[torch.Tensor, str], compression: Any, passes: int
) -> torch.optim.Optimizer:
    """The optimizer with its steps combined over all ranks."""
    kind = type(optimizer)
    made = taken_over(optimizer, type(kind.__name__, (_AdasumOptimizer, kind), {}))
    made._distribute(names, compression, passes)
    return made
