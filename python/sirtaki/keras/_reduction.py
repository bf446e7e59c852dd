"""Gradients, reduced by the framework below Keras."""

from __future__ import annotations

from typing import Any, NamedTuple

from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.keras._library import FRAMEWORK, front_end
from sirtaki.keras.compression import Compression


class Settings(NamedTuple):
    """What to do with gradients."""

    name: str
    op: int = Average
    compression: Any = Compression.none
    predivide: float = 1.0
    groups: Any = None
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set
    local: tuple[int, ...] = ()
    """Identities of variables whose gradients stay on their rank."""
    scales_local: bool = True
    factor: float = 1.0
    """Reduced gradients are multiplied by it."""


def reduce(
    settings: Settings, gradients: list[Any], variables: list[Any], names: list[str]
) -> list:
    """The gradients with those that are there reduced over all ranks."""
    result = list(gradients)
    shared = []
    for position, (gradient, variable) in enumerate(zip(gradients, variables)):
        if gradient is None:
            continue
        if id(variable) not in settings.local:
            shared.append(position)
        elif settings.scales_local:
            result[position] = gradient / len(settings.process_set.ranks)
    if not shared:
        return result
    full = [f"{settings.name}.{names[position]}" for position in shared]
    packed = [settings.compression.compress(gradients[position]) for position in shared]
    reduced = _REDUCE[FRAMEWORK](settings, [small for small, _ in packed], full)
    for position, gradient, (_, context) in zip(shared, reduced, packed):
        result[position] = settings.compression.decompress(gradient, context)
    return result


def _scale(settings: Settings) -> dict[str, float]:
    before, after = 1.0 / settings.predivide, settings.predivide * settings.factor
    return {"prescale_factor": before, "postscale_factor": after}


def _with_torch(settings: Settings, gradients: list[Any], names: list[str]) -> list[Any]:
    hvd, scale, members = front_end(), _scale(settings), settings.process_set
    handles = [
        hvd.allreduce_async_(gradient, None, name, settings.op, process_set=members, **scale)
        for gradient, name in zip(gradients, names)
    ]
    return [hvd.synchronize(handle) for handle in handles]


def _with_jax(settings: Settings, gradients: list[Any], names: list[str]) -> list[Any]:
    hvd, scale = front_end(), _scale(settings)
    return hvd.all_reduce_tree(
        gradients, settings.op, settings.name, process_set=settings.process_set, **scale
    )


_REDUCE = {"jax": _with_jax, "torch": _with_torch}
