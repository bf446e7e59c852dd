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
            result[position] = _divided(gradient, settings.process_set)
    if not shared:
        return result
    reduced = _REDUCE[FRAMEWORK](
        settings,
        [gradients[position] for position in shared],
        [variables[position] for position in shared],
        [f"{settings.name}.{names[position]}" for position in shared],
    )
    for position, gradient in zip(shared, reduced):
        result[position] = gradient
    return result


def _divided(gradient: Any, members: ProcessSet) -> Any:
    """A gradient divided by the number of ranks, also where that number changes."""
    if FRAMEWORK == "tensorflow":
        return front_end().gradients.divided(gradient, members)
    if FRAMEWORK == "jax":
        front_end()._rounds.relies_on_ranks()
    return gradient / len(members.ranks)


def _scale(settings: Settings) -> dict[str, float]:
    before, after = 1.0 / settings.predivide, settings.predivide * settings.factor
    return {"prescale_factor": before, "postscale_factor": after}


def _with_torch(settings: Settings, gradients: list, variables: list, names: list) -> list[Any]:
    hvd, scale, members = front_end(), _scale(settings), settings.process_set
    packed = [settings.compression.compress(gradient) for gradient in gradients]
    handles = [
        hvd.allreduce_async_(small, None, name, settings.op, process_set=members, **scale)
        for (small, _), name in zip(packed, names)
    ]
    decompress = settings.compression.decompress
    return [
        decompress(hvd.synchronize(handle), context)
        for handle, (_, context) in zip(handles, packed)
    ]


def _with_jax(settings: Settings, gradients: list, variables: list, names: list) -> list[Any]:
    packed = [settings.compression.compress(gradient) for gradient in gradients]
    reduced = front_end().all_reduce_tree(
        [small for small, _ in packed],
        settings.op,
        settings.name,
        process_set=settings.process_set,
        **_scale(settings),
    )
    decompress = settings.compression.decompress
    return [decompress(small, context) for small, (_, context) in zip(reduced, packed)]


def _with_tensorflow(
    settings: Settings, gradients: list, variables: list, names: list
) -> list[Any]:
    # Sparse gradients have no compression, and local ones are not among these.
    reducing = front_end().gradients.Gradients(
        settings.name,
        settings.compression,
        settings.sparse_as_dense,
        settings.op,
        settings.predivide,
        settings.groups,
        settings.process_set,
    )
    reduced = reducing.reduce(gradients, variables, generic=True)
    if settings.factor == 1.0:
        return reduced
    return [gradient * settings.factor for gradient in reduced]


_REDUCE = {"jax": _with_jax, "tensorflow": _with_tensorflow, "torch": _with_torch}
