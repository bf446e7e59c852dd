"""Calls of the engine from XLA's programs.

There is one function that XLA calls, and it is the only thing here that is compiled; attributes
say what is wanted. It has a side effect, so that XLA neither merges equal calls nor drops those
whose results nobody uses: on the other ranks, somebody waits for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.ffi
import numpy
from jax._src import effects
from jax._src.ffi import FfiEffect

from sirtaki._core import job
from sirtaki._core.process_sets import ProcessSet
from sirtaki._native import HandIn, Thread, xla_handlers

_TARGET = "sirtaki_collective"

_announced: dict[int, tuple[Any, HandIn] | None] = {}
"""By process set: its engine, and that XLA's threads may submit something at any time; ``None`` if
only programs from before this job was left use it."""


def _register() -> None:
    handler, refusal = xla_handlers()
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    for platform in ("CUDA", "ROCM"):
        jax.ffi.register_ffi_target(_TARGET, refusal, platform=platform)
    # Without this, JAX allows side effects in loops but not in functions with their own gradients.
    effects.custom_derivatives_allowed_effects.add_type(FfiEffect)
    effects.remat_allowed_effects.add_type(FfiEffect)


_register()


def announce(process_set: ProcessSet) -> int:
    """Has the engine know that programs of XLA's may use it; returns its number.

    Otherwise a rank whose main thread waits would count as one that will submit nothing more,
    although a program that runs in XLA's threads has not reached its collective yet.
    """
    engine, number = process_set.engine(), process_set.process_set_id or 0
    known = _announced.get(number)
    if known is None or known[0] is not engine:
        _announced[number] = (engine, engine.hand_in(Thread()))
    return number


def announce_again(process_set: ProcessSet) -> None:
    """Announces programs that were compiled before, which JAX does not trace again."""
    if process_set.process_set_id in _announced:
        announce(process_set)


def _leave() -> None:
    """Waits for programs that are still running: other ranks need what they submit.

    After an exception that nobody has caught, the others are to learn of it at once instead.
    """
    if any(_announced.values()) and not hasattr(sys, "last_value"):
        with suppress(Exception):
            jax.effects_barrier()
    for number, known in _announced.items():
        if known is not None:
            known[1].end()
        _announced[number] = None


job.world.leaving.append(_leave)


def call(
    arrays: Sequence[Any],
    results: Sequence[tuple[Any, Any]],
    in_place: dict[int, int],
    vmap_method: str,
    engine: int,
    **attributes: Any,
) -> list[jax.Array]:
    """Runs a collective; ``results`` are shapes and element types, ``in_place`` says which result
    may have the memory of which argument."""
    kinds = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    function = jax.ffi.ffi_call(
        _TARGET,
        kinds,
        has_side_effect=True,
        vmap_method=vmap_method,
        input_output_aliases=in_place,
    )
    return list(function(*arrays, engine=numpy.int64(engine), **attributes))
