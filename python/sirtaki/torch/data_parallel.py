"""``data_parallel``: a model that trains on all ranks, in one line.

Gradients are submitted as the backward pass produces them, those of GPUs several at a time, and
averaged; when ``backward()`` returns, they are those of the whole batch, so optimizer, clipping
and loss scaling need no change. A small tensor sent with them says which parameters a rank used:
the gradient of a parameter that some ranks did not use counts as zero there, and one that no rank
used keeps its gradient.

The parts of a step are marked for timelines and profiles: forward is the call of the model,
backward lasts from the first gradient to the last, the optimizer's step is observed through
PyTorch's hooks, and the time between that step and the next forward pass counts as input.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from sirtaki import _progress
from sirtaki._core.job import enter_phase, is_elastic, leave_phase, world
from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set, init
from sirtaki.torch import _buckets, _memory
from sirtaki.torch._hooks import around_steps, at_end_of_backward, when_accumulated
from sirtaki.torch._submit import reduce_in_place
from sirtaki.torch.asynchronous import broadcast_async_, join
from sirtaki.torch.compression import Compression, travels_as
from sirtaki.torch.sparse import sparse_allreduce_async


class DataParallel(torch.nn.Module):
    """The model, trained on all ranks; made by ``data_parallel``."""

    def __init__(  # noqa: D107
        self,
        module: torch.nn.Module,
        compression: Any,
        process_set: ProcessSet,
        broadcast_buffers: bool,
        op: int = Average,
        scale: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        super().__init__()
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self._compression, self._process_set = compression, process_set
        self._named = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        self._names = {parameter: f"gradient.{name}" for name, parameter in self._named}
        self._in_flight: dict[torch.Tensor, Any] = {}
        """Functions that wait for gradients; ``None`` for those that are submitted with others."""
        self._bucket = _buckets.Bucket()
        self._together: list[tuple[list[torch.Tensor], Any]] = []
        """Parameters whose gradients were submitted together, and what waits for these."""
        self._local: set[torch.Tensor] = set()
        """Parameters with gradients that other ranks do not know about."""
        self._reduces, self._called_back, self._steps = True, False, 0
        self._op, self._scale = op, scale
        if not is_elastic():
            # There, the others may have made theirs long ago: the state makes models equal.
            self._share_model()
        if len(process_set.ranks) > 1 or is_elastic() or scale[0] * scale[1] != 1.0:
            self._hooks = [when_accumulated(p, self._accumulated) for _, p in self._named]
        elif self._named:
            self._hooks = [when_accumulated(self._named[0][1], self._count)]

    def _share_model(self) -> None:
        """Gives all ranks the model of the first one."""
        root = self._process_set.ranks[0]
        handles = [
            broadcast_async_(tensor, root, f"model.{name}", self._process_set)
            for name, tensor in self.module.state_dict(keep_vars=True).items()
            if isinstance(tensor, torch.Tensor)
        ]
        for handle in handles:
            handle.wait()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output; in training, with the buffers of the first rank."""
        if self._called_back:
            # The last backward pass failed half-way.
            self._called_back = False
            self._local.clear()
            self._in_flight.clear()
            self._together.clear()
            self._bucket = _buckets.Bucket()
        if not self.training:
            leave_phase()
            return self.module(*args, **kwargs)
        enter_phase("forward")
        try:
            if self.broadcast_buffers and self._reduces and torch.is_grad_enabled():
                self._share_buffers()
            return self.module(*args, **kwargs)
        finally:
            leave_phase()

    def _share_buffers(self) -> None:
        if self._process_set.size() == 1:
            return
        places: dict[torch.device, list[torch.Tensor]] = {}
        for buffer in self.module.buffers():
            places.setdefault(buffer.device, []).append(buffer)
        start = partial(_spread, self._process_set.engine())
        handles = [
            _memory.hand_in(partial(start, f"buffers.{number}"), buffers)
            for number, buffers in enumerate(places.values())
        ]
        for handle in handles:
            handle.wait()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only accumulate; the next one outside reduces everything.

        >>> import torch, sirtaki
        >>> model = sirtaki.data_parallel(torch.nn.Linear(2, 1))
        >>> with model.no_sync():
        ...     model(torch.ones(1, 2)).sum().backward()
        >>> model(torch.ones(1, 2)).sum().backward()
        """
        before, self._reduces = self._reduces, False
        try:
            yield
        finally:
            self._reduces = before

    @contextmanager
    def join(self) -> Iterator[None]:
        """For ranks with different numbers of batches: a rank that has finished helps the others.

        A rank without a batch counts as one with gradients of zero. Each rank keeps its own
        buffers, because the first one may have finished.
        """
        before, self.broadcast_buffers = self.broadcast_buffers, False
        try:
            yield
        finally:
            self.broadcast_buffers = before
        join()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own, as without this wrapper."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The model's own, as without this wrapper."""
        return self.module.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:  # noqa: D105
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        self._local.add(parameter)
        if not self._reduces:
            return
        if parameter in self._in_flight:
            raise RuntimeError(
                f"the parameter of {self._names[parameter]} got a gradient twice in one backward\n"
                "hint: use checkpoint(..., use_reentrant=False)"
            )
        if not self._called_back:
            self._called_back = True
            enter_phase("backward")
            self._bucket.begin_step()
            at_end_of_backward(self._finish)
        self._is_ready(parameter)

    def _is_ready(self, parameter: torch.Tensor) -> None:
        """A gradient is complete; what is not submitted here is after the backward pass."""
        if not _buckets.is_collected(parameter.grad):
            self._start_reduction(parameter, parameter.grad)
            return
        self._in_flight[parameter] = None
        if self._bucket.add(parameter, parameter.grad):
            self._start_collected()

    def _start_collected(self) -> None:
        """Submits the gradients that were collected."""
        if self._bucket:
            parameters, streams = self._bucket.take()
            self._start_together(parameters, [p.grad for p in parameters], streams)

    def _start_together(
        self, parameters: list[torch.Tensor], gradients: list[torch.Tensor], streams: list
    ) -> None:
        """Submits gradients that are on GPUs by one call."""
        names = [self._names[parameter] for parameter in parameters]
        how = self._op, self._scale, self._process_set, self._compression
        self._together.append((parameters, _buckets.reduce_each(gradients, names, streams, *how)))
        self._in_flight.update(dict.fromkeys(parameters))

    def _start_all(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Submits gradients of parameters, those on GPUs by one call."""
        collected = [(p, gradient) for p, gradient in pairs if _buckets.is_collected(gradient)]
        if collected:
            parameters, gradients = (list(one) for one in zip(*collected))
            streams = [_memory.current_stream(gradient) for gradient in gradients]
            self._start_together(parameters, gradients, streams)
        for parameter, gradient in pairs:
            if not _buckets.is_collected(gradient):
                self._start_reduction(parameter, gradient)

    def _start_reduction(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        name = self._names[parameter]
        if gradient.is_sparse:
            self._in_flight[parameter] = sparse_allreduce_async(
                gradient, name, self._op, self._process_set
            )
            return
        small, ctx = gradient, None
        wire = travels_as(self._compression, gradient)
        if not wire:
            small, ctx = self._compression.compress(gradient)
        handle = reduce_in_place([small], name, self._op, self._scale, self._process_set, wire)

        def wait() -> torch.Tensor:
            result = handle.wait()[0]
            result = result if wire else self._compression.decompress(result, ctx)
            return gradient if result.data_ptr() == gradient.data_ptr() else gradient.copy_(result)

        self._in_flight[parameter] = wait

    def _finish(self) -> None:
        """Called at the end of the backward pass: submits what is missing, and waits."""
        absent = {p for _, p in self._named if p not in self._in_flight and p not in self._local}
        used = torch.tensor([float(parameter not in absent) for _, parameter in self._named])
        agreed = reduce_in_place([used], "used", Average, (1.0, 1.0), self._process_set)
        self._start_collected()
        left = [p for _, p in self._named if p not in self._in_flight]
        self._start_all([(p, torch.zeros_like(p) if p in absent else p.grad) for p in left])
        in_flight, self._in_flight = self._in_flight, {}
        together, self._together = self._together, []
        results = {p: wait() for p, wait in in_flight.items() if wait is not None}
        for parameters, wait in together:
            results.update(zip(parameters, wait()))
        agreed.wait()
        self._called_back = False
        self._local.clear()
        for (_, parameter), share in zip(self._named, used.tolist()):
            if parameter not in absent or (share > 0 and parameter.grad is None):
                parameter.grad = results[parameter]
            elif share > 0:
                parameter.grad.add_(results[parameter])
        leave_phase()
        self._count()

    def _count(self, _: torch.Tensor | None = None) -> None:
        """Counts a backward pass in which all ranks take part as a step."""
        if self._reduces:
            self._steps += 1
            _progress.count(self._steps)


def mark_steps() -> None:
    """Marks steps of optimizers for timelines and profiles, from now on."""
    if not world.sees_steps:
        before, after = partial(enter_phase, "optimizer"), partial(enter_phase, "input")
        world.sees_steps = around_steps(before, after)


def _spread(engine: Any, name: str, described: list) -> Any:
    return engine.broadcast(name, described, 0)


def data_parallel(
    model: torch.nn.Module,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
    broadcast_buffers: bool = True,
) -> DataParallel:
    """Trains a model on all ranks: everything else stays as for one process.

    Joins the job if this process has not done so, gives all ranks the model of the first one (in
    an elastic job, the state's ``sync`` does that), and averages gradients during the backward
    pass. Before each forward pass in training, all ranks
    get the buffers of the first one, such as running statistics of batches, unless
    ``broadcast_buffers`` is false.

    >>> import torch, sirtaki
    >>> model = sirtaki.data_parallel(torch.nn.Linear(2, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> model(torch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    """
    init()
    mark_steps()
    return DataParallel(model, compression, process_set, broadcast_buffers)
