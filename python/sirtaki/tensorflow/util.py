"""What scripts import from ``horovod.tensorflow.util``."""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()


def _make_subgraph(f: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a function once for the same arguments, in eager mode and in graphs."""
    cached = functools.lru_cache(maxsize=None)(lambda eager, *args: f(*args))
    return lambda *args: cached(tf.executing_eagerly(), *args)


def vars_to_refs(vars: Any) -> Any:
    """References to variables, which can be compared and be keys of dictionaries."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables of references.

    >>> variable = tf.Variable(1)
    >>> refs_to_vars(vars_to_refs([variable]))[0] is variable
    True
    """
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()
