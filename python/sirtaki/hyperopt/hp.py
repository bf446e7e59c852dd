"""Hyperopt's parameters, and the spaces that are built of them.

A space is any nesting of dicts, lists and tuples with parameters in it. ``choice`` may lead to
further parameters, which then exist only for trials that chose it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

__all__ = [
    "choice",
    "lognormal",
    "loguniform",
    "normal",
    "pchoice",
    "qlognormal",
    "qloguniform",
    "qnormal",
    "quniform",
    "randint",
    "space_eval",
    "uniform",
    "uniformint",
]

_EDGE = 1e-6
"""How close a place in a normal distribution comes to its ends."""

Ask = Callable[[str, Mapping[str, Any]], Any]
"""The value of the parameter of this name, from a domain as a study's file has it."""


class Parameter:
    """A parameter: where it is searched, and what becomes of the place that is found."""

    def __init__(
        self, label: str, domain: Mapping[str, Any], value: Callable[[Any], Any] = lambda at: at
    ) -> None:
        """Named ``label``."""
        self.label, self.domain, self.value = label, domain, value


class Choice:
    """A parameter that is one of several spaces."""

    def __init__(self, label: str, options: Sequence[Any]) -> None:
        """Named ``label``."""
        if not options:
            raise ValueError(f"there is nothing to choose from for {label!r}")
        self.label, self.options = label, list(options)


def _rounded(step: float) -> Callable[[float], float]:
    return lambda value: round(value / step) * step


def uniform(label: str, low: float, high: float) -> Parameter:
    """A number between two others."""
    return Parameter(label, {"float": [low, high]})


def quniform(label: str, low: float, high: float, q: float) -> Parameter:
    """The same, rounded to multiples of ``q``."""
    return Parameter(label, {"float": [low, high]}, _rounded(q))


def uniformint(label: str, low: int, high: int, q: float = 1.0) -> Parameter:
    """A whole number between two others, both included."""
    return Parameter(label, {"int": [int(low), int(high)]}, int)


def randint(label: str, low: int, high: int | None = None) -> Parameter:
    """A whole number from ``low`` up to but not including ``high``, or from 0 up to ``low``."""
    first, behind = (0, low) if high is None else (low, high)
    return Parameter(label, {"int": [int(first), int(behind) - 1]}, int)


def loguniform(label: str, low: float, high: float) -> Parameter:
    """A number whose logarithm is between two others."""
    return Parameter(label, {"log": [math.exp(low), math.exp(high)]})


def qloguniform(label: str, low: float, high: float, q: float) -> Parameter:
    """The same, rounded to multiples of ``q``."""
    return Parameter(label, {"log": [math.exp(low), math.exp(high)]}, _rounded(q))


def _of_normal(mu: float, sigma: float) -> Callable[[float], float]:
    return NormalDist(mu, sigma).inv_cdf


def normal(label: str, mu: float, sigma: float) -> Parameter:
    """A normally distributed number."""
    return Parameter(label, {"float": [_EDGE, 1 - _EDGE]}, _of_normal(mu, sigma))


def qnormal(label: str, mu: float, sigma: float, q: float) -> Parameter:
    """The same, rounded to multiples of ``q``."""
    place, rounded = _of_normal(mu, sigma), _rounded(q)
    return Parameter(label, {"float": [_EDGE, 1 - _EDGE]}, lambda at: rounded(place(at)))


def lognormal(label: str, mu: float, sigma: float) -> Parameter:
    """A number whose logarithm is normally distributed."""
    place = _of_normal(mu, sigma)
    return Parameter(label, {"float": [_EDGE, 1 - _EDGE]}, lambda at: math.exp(place(at)))


def qlognormal(label: str, mu: float, sigma: float, q: float) -> Parameter:
    """The same, rounded to multiples of ``q``."""
    place, rounded = _of_normal(mu, sigma), _rounded(q)
    return Parameter(label, {"float": [_EDGE, 1 - _EDGE]}, lambda at: rounded(math.exp(place(at))))


def choice(label: str, options: Sequence[Any]) -> Choice:
    """One of several things, which may have parameters of their own."""
    return Choice(label, options)


def pchoice(label: str, p_options: Sequence[tuple[float, Any]]) -> Choice:
    """The same with probabilities, which are left to the sampler."""
    return Choice(label, [option for _, option in p_options])


def sample(space: Any, ask: Ask) -> Any:
    """The space with a value for each parameter that exists; ``ask`` is asked for their places."""
    if isinstance(space, Parameter):
        return space.value(ask(space.label, space.domain))
    if isinstance(space, Choice):
        index = ask(space.label, {"choice": list(range(len(space.options)))})
        return sample(space.options[index], ask)
    if isinstance(space, Mapping):
        return {key: sample(value, ask) for key, value in space.items()}
    if isinstance(space, (list, tuple)):
        return type(space)(sample(value, ask) for value in space)
    return space


def labelled(space: Any, places: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter's value by its label, the index of a choice: what ``fmin`` returns."""
    found: dict[str, Any] = {}

    def ask(label: str, domain: Mapping[str, Any]) -> Any:
        found[label] = places[label]
        return places[label]

    def visit(part: Any) -> None:
        if isinstance(part, Parameter):
            found[part.label] = part.value(ask(part.label, part.domain))
        elif isinstance(part, Choice):
            visit(part.options[ask(part.label, {})])
        elif isinstance(part, Mapping):
            for value in part.values():
                visit(value)
        elif isinstance(part, (list, tuple)):
            for value in part:
                visit(value)

    visit(space)
    return found


def space_eval(space: Any, point: Mapping[str, Any]) -> Any:
    """The space at a point that ``fmin`` returned.

    >>> from sirtaki.hyperopt import hp, space_eval
    >>> space_eval({"kind": hp.choice("kind", ["a", "b"])}, {"kind": 1})
    {'kind': 'b'}
    """
    if isinstance(space, Parameter):
        return point[space.label]
    if isinstance(space, Choice):
        chosen = point[space.label]
        index = chosen[0] if isinstance(chosen, (list, tuple)) else chosen
        return space_eval(space.options[int(index)], point)
    if isinstance(space, Mapping):
        return {key: space_eval(value, point) for key, value in space.items()}
    if isinstance(space, (list, tuple)):
        return type(space)(space_eval(value, point) for value in space)
    return space


def asker(suggest: Callable[[str, str], str]) -> Ask:
    """Asks a study, which speaks JSON."""
    return lambda label, domain: json.loads(suggest(label, json.dumps(domain)))
