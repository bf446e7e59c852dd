"""Variables of models and optimizers as bytes, which is all that making them equal needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sirtaki._core import views
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.keras._library import IS_3, keras


def of_model(model: Any) -> list[Any]:
    """What a model has learned.

    The state of random generators is left out: ranks draw, for instance for dropout, each by
    itself.
    """
    return [one for one in model.variables if not one.name.endswith("seed_generator_state")]


def of_optimizer(optimizer: Any) -> list[Any]:
    """All variables of an optimizer, whose list is a function in some versions of Keras."""
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def build(optimizer: Any, trained: list[Any]) -> None:
    """Makes an optimizer's variables, which it otherwise does not have before its first step."""
    if IS_3:
        if not getattr(optimizer, "built", True):
            optimizer.build(trained)
    elif hasattr(optimizer, "build"):
        optimizer.build(trained)
    elif hasattr(optimizer, "_create_all_weights"):
        # Optimizers from before Keras 2.11.
        optimizer._create_all_weights(trained)


def value_of(variable: Any) -> np.ndarray:
    """A copy of the variable's value."""
    if IS_3 and isinstance(variable, keras.Variable):
        return np.array(keras.ops.convert_to_numpy(variable), order="C")
    return np.array(variable.numpy() if hasattr(variable, "numpy") else variable, order="C")


def broadcast(
    variables: Iterable[Any],
    root_rank: int = 0,
    name: str = "variables",
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks the values of ``root_rank``."""
    variables = list(variables)
    values = [value_of(variable) for variable in variables]
    handles = []
    for number, value in enumerate(values):
        if value.size:
            # A change of the element type keeps the memory.
            view, full = memoryview(value.reshape(-1).view(np.uint8)), f"{name}.{number}"
            handles.append(views.collectives.spread(view, root_rank, full, process_set, False))
    for handle in handles:
        handle.wait()
    for variable, value in zip(variables, values):
        variable.assign(value)


def short(variable: Any) -> str:
    """The end of a variable's name: what comes before it counts models and layers.

    Those numbers can differ between ranks, for instance where only one loads a checkpoint.
    """
    return str(variable.name).rpartition("/")[2].partition(":")[0]
