"""``data_parallel`` for whatever framework a model belongs to.

The framework is found by the names of the modules that the model's classes come from, so that no
framework is imported that the program does not use.
"""

from __future__ import annotations

import importlib
from typing import Any

_FRONT_ENDS = {
    "keras": "sirtaki.keras",
    "tf_keras": "sirtaki.keras",
    "torch": "sirtaki.torch",
    "optax": "sirtaki.jax",
    "flax": "sirtaki.jax",
    "jax": "sirtaki.jax",
    "jaxlib": "sirtaki.jax",
}
"""By package, the first match counts: a model of Keras can be a module of PyTorch as well."""


def data_parallel(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Trains a model on all ranks: everything else stays as for one process.

    The model is a module of PyTorch, a model of Keras, or, for JAX, an optimizer of optax or a
    function compiled by ``jax.jit``. Further arguments and what is returned are those of
    ``data_parallel`` in ``sirtaki.torch``, ``sirtaki.keras`` or ``sirtaki.jax``.

    >>> import torch, sirtaki
    >>> model = sirtaki.data_parallel(torch.nn.Linear(2, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> model(torch.ones(4, 2)).sum().backward()
    >>> optimizer.step()
    """
    return importlib.import_module(front_end(model)).data_parallel(model, *args, **kwargs)


def front_end(model: Any) -> str:
    """The module of the front end for a model."""
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    for package, place in _FRONT_ENDS.items():
        if package in packages:
            return place
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    raise TypeError(
        f"data_parallel cannot train an object of type {kind}\n"
        "hint: give it a torch.nn.Module, a model of Keras, an optimizer of optax, or a function "
        "compiled by jax.jit; for a loss function of JAX there is sirtaki.jax.data_parallel, and "
        "for anything else sirtaki.numpy has collectives"
    )
