"""``DistributedOptimizer``: an optimizer whose gradients are reduced over all ranks.

Gradients are submitted in place as the backward pass produces them, those of GPUs several at a
time; the engine fuses small ones and works while the backward pass goes on. ``step`` waits.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

from sirtaki import _progress
from sirtaki._core import job
from sirtaki._core.job import enter_phase, leave_phase
from sirtaki._core.operations import Adasum, Average, check_adasum
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki._errors import Error
from sirtaki.torch import _buckets
from sirtaki.torch._hooks import at_end_of_backward, when_accumulated
from sirtaki.torch._submit import reduce_in_place
from sirtaki.torch.compression import Compression, travels_as
from sirtaki.torch.functions import broadcast_object
from sirtaki.torch.sparse import sparse_allreduce_async

TOO_OFTEN = (
    "gradients were computed more than backward_passes_per_step times before step()\n"
    "hint: increase backward_passes_per_step to accumulate gradients locally"
)
TOO_EARLY = (
    "zero_grad() was called after backward() but before step() or synchronize(), while gradients "
    "are still being reduced"
)


# Type checkers see a mixin as the class that it will be part of.
Mixin: Any = torch.optim.Optimizer if TYPE_CHECKING else object


class _Distributed(Mixin):
    """What is added to a user's optimizer: a new class is made from both."""

    def _distribute(
        self,
        named_parameters: Iterable | None,
        compression: Any,
        passes: int,
        op: int,
        predivide: float,
        groups: Any,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self._parameter_names = _named(self.param_groups, named_parameters)
        self._compression = compression
        self.backward_passes_per_step = passes
        self.op = op
        self.gradient_predivide_factor = predivide
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._scale = (1.0 / predivide, predivide) if op == Average else (1.0, 1.0)
        self._waiting: dict[torch.Tensor, int] = {}
        """Backward passes left for each parameter."""
        self._ready: set[torch.Tensor] = set()
        """Parameters of groups that are not complete yet."""
        self._bucket = _buckets.Bucket()
        self._in_flight: dict[tuple, Any] = {}
        """What was submitted: parameters and a function that waits for them."""
        self._hooks: list[Any] = []
        self._group_of: dict[torch.Tensor, tuple] = {}
        self._synchronized, self._should_synchronize = False, True
        self._steps = 0
        _check_groups(groups)
        self._register(groups)

    def _register(self, groups: Any) -> None:
        """Has gradients reduced from now on, if there are or may be other ranks."""
        if not self.process_set.included() or not (job.size() > 1 or job.is_elastic()):
            return
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        for group in _grouped(parameters, groups, self._parameter_names, self.process_set):
            self._group_of.update(dict.fromkeys(group, group))
        for parameter in parameters:
            self._waiting[parameter] = self.backward_passes_per_step
            self._hooks.append(when_accumulated(parameter, self._accumulated))

    def _accumulated(self, parameter: torch.Tensor) -> None:
        if self._waiting[parameter] <= 0:
            raise AssertionError(TOO_OFTEN)
        self._waiting[parameter] -= 1
        if self._waiting[parameter] == 0:
            group = self._group_of.get(parameter)
            if group is None:
                began = bool(self._bucket)
                self._start_reduction((parameter,))
                if self._bucket and not began:
                    at_end_of_backward(self._start_collected)
                return
            self._ready.add(parameter)
            if self._ready.issuperset(group):
                self._ready.difference_update(group)
                self._start_reduction(group)

    def _start_reduction(self, parameters: tuple) -> None:
        """Submits the gradients of parameters that belong together, or one with others later."""
        if not self._in_flight and not self._bucket:
            enter_phase("backward")
            self._bucket.begin_step()
        for parameter in parameters:
            self._waiting[parameter] = 0
            if parameter.grad is None:
                # Other ranks may have a gradient.
                parameter.grad = torch.zeros_like(parameter)
        if len(parameters) == 1 and _buckets.is_collected(parameters[0].grad):
            if self._bucket.add(parameters[0], parameters[0].grad):
                self._start_collected()
        elif any(parameter.grad.is_sparse for parameter in parameters):
            for parameter in parameters:
                self._in_flight[(parameter,)] = self._start_sparse(parameter)
        else:
            self._in_flight[parameters] = self._start_dense(parameters)

    def _start_collected(self) -> None:
        """Submits the gradients that were collected."""
        if self._bucket:
            parameters, streams = self._bucket.take()
            gradients = [parameter.grad for parameter in parameters]
            names = [self._parameter_names[parameter] for parameter in parameters]
            wait = _buckets.reduce_each(
                gradients,
                names,
                streams,
                self.op,
                self._scale,
                self.process_set,
                self._compression,
            )
            self._in_flight[tuple(parameters)] = wait

    def _start_dense(self, parameters: tuple) -> Any:
        gradients = [parameter.grad for parameter in parameters]
        wires = {travels_as(self._compression, gradient) for gradient in gradients}
        wire = wires.pop() if len(wires) == 1 else None
        smaller = [(g, None) if wire else self._compression.compress(g) for g in gradients]
        handle = reduce_in_place(
            [tensor for tensor, _ in smaller],
            self._parameter_names[parameters[0]],
            self.op,
            self._scale,
            self.process_set,
            wire,
        )

        def wait() -> None:
            reduced = handle.wait()
            for gradient, tensor, (_, ctx) in zip(gradients, reduced, smaller):
                result = tensor if wire else self._compression.decompress(tensor, ctx)
                if result.data_ptr() != gradient.data_ptr():
                    gradient.copy_(result)

        return wait

    def _start_sparse(self, parameter: torch.Tensor) -> Any:
        gradient, name = parameter.grad, self._parameter_names[parameter]
        if self.sparse_as_dense or not gradient.is_sparse:
            dense = gradient.to_dense()
            handle = reduce_in_place([dense], name, self.op, self._scale, self.process_set)

            def wait() -> None:
                reduced = handle.wait()[0]
                parameter.grad = reduced.to_sparse() if gradient.is_sparse else reduced

            return wait
        result = sparse_allreduce_async(gradient, name, self.op, self.process_set)

        def wait_for_parts() -> None:
            parameter.grad = result()

        return wait_for_parts

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. Call ``step`` in ``skip_synchronize`` next."""
        self._synchronized = True
        if not self._hooks:
            return
        self._start_collected()
        done = {parameter for parameters in self._in_flight for parameter in parameters}
        self._ready.clear()
        for parameter in self._waiting:
            if parameter not in done:
                group = self._group_of.get(parameter, (parameter,))
                if group[0] is parameter:
                    self._start_reduction(group)
        self._start_collected()
        in_flight, self._in_flight = self._in_flight, {}
        for wait in in_flight.values():
            wait()
        leave_phase()
        self._waiting = dict.fromkeys(self._waiting, self.backward_passes_per_step)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, ``step`` does not wait, because ``synchronize`` already has.

        Between the two, gradients can be changed, for example clipped.
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Any = None) -> Any:
        """Waits until all gradients are reduced and makes the optimizer's step."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after "
                    "optimizer.synchronize(): gradients are reduced a second time\n"
                    "hint: put it into `with optimizer.skip_synchronize():`",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        self._steps += 1
        _progress.count(self._steps)
        if job.world.sees_steps:
            return super().step(closure)
        enter_phase("optimizer")
        try:
            return super().step(closure)
        finally:
            leave_phase()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own, but not while gradients are being reduced."""
        if self._in_flight or self._bucket:
            raise AssertionError(TOO_EARLY)
        super().zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes after how many backward passes gradients are reduced."""
        self.backward_passes_per_step = passes
        self._waiting = dict.fromkeys(self._waiting, passes)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own; gradients that are being reduced are discarded."""
        with suppress(Error):
            self._start_collected()
        in_flight, self._in_flight = self._in_flight, {}
        for wait in in_flight.values():
            with suppress(Error):
                wait()
        self._ready.clear()
        self._synchronized, self._should_synchronize = False, True
        self._waiting = dict.fromkeys(self._waiting, self.backward_passes_per_step)
        super().load_state_dict(*args, **kwargs)


def _named(param_groups: list[dict], named: Iterable | None) -> dict[torch.Tensor, str]:
    """The names of all parameters, checked."""
    parameters = [p for group in param_groups for p in group["params"]]
    if named is None:
        return {p: f"gradient.{index}" for index, p in enumerate(parameters)}
    named = list(named)
    if any(not isinstance(item, tuple) for item in named):
        raise ValueError(
            "named_parameters must be tuples (name, parameter), as from model.named_parameters()"
        )
    names = [name for name, _ in named]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"names of parameters must be unique; these are not: {', '.join(twice)}")
    found = {parameter: f"gradient.{name}" for name, parameter in named}
    missing = sum(parameter not in found for parameter in parameters)
    if missing:
        raise ValueError(f"named_parameters lacks {missing} parameters of the optimizer")
    return found


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if not isinstance(groups, list):
        if not isinstance(groups, int) or groups <= 0:
            raise ValueError("groups must be a positive integer or a list of lists of tensors")
        return
    inside = [parameter for group in groups for parameter in group]
    if any(not isinstance(parameter, torch.Tensor) for parameter in inside):
        raise ValueError("groups must consist of torch.Tensor")
    if len({id(parameter) for parameter in inside}) < len(inside):
        raise ValueError("a parameter can only appear once in groups")


def _grouped(
    parameters: Sequence[torch.Tensor],
    groups: Any,
    names: dict[torch.Tensor, str],
    process_set: ProcessSet,
) -> list[tuple]:
    """Parameters that are reduced together, the same on all ranks."""
    if groups is None:
        return []
    if isinstance(groups, list):
        known = set(parameters)
        wanted = [tuple(p for p in group if p in known) for group in groups]
        return [group for group in wanted if group]
    order = [names[p] for p in parameters]
    if not job.is_elastic():
        # There, ranks that come later would ask for it alone.
        order = broadcast_object(order, process_set.ranks[0], "groups", process_set)
    by_name = {names[p]: p for p in parameters}
    ordered = [by_name[name] for name in order]
    share, more = divmod(len(ordered), groups)
    bounds = [index * share + min(index, more) for index in range(groups + 1)]
    cuts = [tuple(ordered[begin:end]) for begin, end in zip(bounds, bounds[1:])]
    return [group for group in cuts if group]


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """The optimizer with gradients reduced over all ranks before each step.

    Gradients are sent during the backward pass. The result is an optimizer of the same class, with
    ``synchronize()`` and ``skip_synchronize()`` for programs that change gradients before the
    step.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    >>> model(torch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op == Average")
    if num_groups != 0:
        warnings.warn("num_groups has been replaced by groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if op == Adasum:
        check_adasum(process_set)
    if op == Adasum and (job.size() > 1 or job.is_elastic()):
        from sirtaki.torch.adasum import adasum_optimizer

        return adasum_optimizer(
            optimizer, _named(optimizer.param_groups, named_parameters), compression,
            backward_passes_per_step,
        )  # fmt: skip
    kind = type(optimizer)
    made = taken_over(optimizer, type(kind.__name__, (_Distributed, kind), {}))
    made._distribute(
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
    return made


def taken_over(optimizer: torch.optim.Optimizer, kind: type) -> torch.optim.Optimizer:
    """The same optimizer, with parameters, options and state, as an object of another class."""
    made: Any = object.__new__(kind)
    made.__dict__.update(optimizer.__dict__)
    # Schedulers store a function there that would call the old object.
    made.__dict__.pop("step", None)
    return made
