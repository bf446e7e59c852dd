"""``DistributedDataParallel`` with the arguments of ``apex.parallel``, for scripts written for it.

It is ``data_parallel`` with apex's settings. Gradients are collected until they have
``message_size`` elements together and then submitted, each under its own name: ranks need not
agree on the contents of a bucket, because the engine fuses whatever is sent at the same time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from sirtaki._core.compression import Compressor
from sirtaki._core.operations import Average, Sum
from sirtaki._core.process_sets import global_process_set, init
from sirtaki.torch.compression import Compression
from sirtaki.torch.data_parallel import DataParallel, mark_steps


class DistributedDataParallel(DataParallel):
    """A model that trains on all ranks, wrapped as by ``apex.parallel.DistributedDataParallel``.

    All ranks get the model of the first one; in an elastic job, the state's ``sync`` does that.
    When ``backward()`` returns, gradients are reduced:

    - ``message_size``: they are sent as soon as they have this many elements together;
    - ``allreduce_trigger_params``: they are sent whenever the gradient of one of these parameters
      is ready;
    - ``delay_allreduce``: they are sent together at the end of the backward pass;
    - ``allreduce_always_fp32``: they are sent in single precision, whatever their type;
    - ``gradient_average``: they are averaged, otherwise added up;
    - ``gradient_predivide_factor``: they are divided by it before they are added up. An average is
      multiplied by it afterwards, a sum is not;
    - ``retain_allreduce_buffers``: ``allreduce_buffers`` holds them in flat tensors, too.

    ``num_allreduce_streams`` and ``prof`` have no effect.

    >>> import torch, sirtaki.torch as hvd
    >>> model = hvd.DistributedDataParallel(torch.nn.Linear(2, 1), delay_allreduce=True)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> model(torch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(  # noqa: D107
        self,
        module: torch.nn.Module,
        message_size: int = 10_000_000,
        delay_allreduce: bool = False,
        shared_param: bool | None = None,
        allreduce_trigger_params: Sequence[torch.Tensor] | None = None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators: Any = None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor: float | None = None,
        prof: bool = False,
    ) -> None:
        if gradient_average_split_factor is not None:
            warnings.warn(
                "gradient_average_split_factor is the old name of gradient_predivide_factor",
                DeprecationWarning,
                stacklevel=2,
            )
            gradient_predivide_factor = gradient_average_split_factor
        _check(message_size, shared_param, allreduce_communicators, gradient_predivide_factor)
        triggers = _triggers(module, allreduce_trigger_params)
        if triggers and delay_allreduce:
            raise ValueError("allreduce_trigger_params has no meaning with delay_allreduce")
        init()
        mark_steps()
        compression = _Single if allreduce_always_fp32 else Compression.none
        op = Average if gradient_average else Sum
        after = gradient_predivide_factor if gradient_average else 1.0
        scale = (1.0 / gradient_predivide_factor, after)
        super().__init__(module, compression, global_process_set, False, op, scale)
        self._message_size, self._delays, self._triggers = message_size, delay_allreduce, triggers
        self._retains = retain_allreduce_buffers
        self._collected: list[torch.Tensor] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output."""
        self._collected.clear()
        return super().forward(*args, **kwargs)

    @property
    def allreduce_buffers(self) -> list[torch.Tensor]:
        """All reduced gradients, as a flat tensor for each type, if they are to be retained."""
        gradients = [p.grad for _, p in self._named if p.grad is not None]
        return _flat(gradients) if self._retains else []

    def disable_allreduce(self) -> None:
        """Backward passes only accumulate from now on."""
        self._reduces = False

    def enable_allreduce(self) -> None:
        """The next backward pass reduces everything that was accumulated."""
        self._reduces = True

    def _is_ready(self, parameter: torch.Tensor) -> None:
        if self._delays:
            return
        self._collected.append(parameter)
        if self._triggers:
            complete = parameter in self._triggers
        else:
            complete = sum(one.numel() for one in self._collected) >= self._message_size
        if complete:
            self._start_all([(one, one.grad) for one in self._collected])
            self._collected.clear()

    def _start_reduction(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        if gradient.is_sparse and self._op == Sum:
            # Its parts are gathered, and a gather has no factors.
            gradient = gradient * self._scale[0]
        super()._start_reduction(parameter, gradient)

    def _finish(self) -> None:
        self._collected.clear()
        super()._finish()


class _Single(Compressor):
    """Has gradients sent in single precision."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.float(), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


def _check(message_size: int, shared: Any, communicators: Any, predivide: float) -> None:
    """Refuses what apex refuses, and what is not possible here."""
    if shared is not None:
        raise ValueError(
            "shared_param is no longer an argument\n"
            "hint: leave it out, shared parameters need none; delay_allreduce=True does the same"
        )
    if communicators is not None:
        raise ValueError(
            "allreduce_communicators cannot be given: the engine has connections of its own\n"
            "hint: leave it out"
        )
    if message_size <= 0:
        raise ValueError(f"message_size must be above zero, not {message_size}")
    if predivide <= 0:
        raise ValueError(f"gradient_predivide_factor must be above zero, not {predivide}")


def _triggers(
    module: torch.nn.Module, parameters: Sequence[torch.Tensor] | None
) -> set[torch.Tensor]:
    triggers, known = set(parameters or ()), set(module.parameters())
    if not triggers <= known:
        raise ValueError(
            f"{len(triggers - known)} of allreduce_trigger_params are not parameters of the model"
        )
    return triggers


def _flat(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """One tensor for each type, with all numbers of that type."""
    kinds: dict[Any, list[torch.Tensor]] = {}
    for gradient in gradients:
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        kinds.setdefault((dense.dtype, dense.device), []).append(dense.reshape(-1))
    return [torch.cat(parts) for parts in kinds.values()]
