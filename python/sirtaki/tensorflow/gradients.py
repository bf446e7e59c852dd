"""Gradients, reduced over all ranks: what the tape and all optimizers have in common."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow import _ops, sparse
from sirtaki.tensorflow._ops import Reduction, unconverted
from sirtaki.tensorflow.compression import Compression

Groups = Any
"""A number of groups, or lists of variables whose gradients are reduced together."""


class Gradients:
    """How to reduce gradients, and which of them.

    Those of local variables stay on their rank. By default they are divided by the number of
    ranks, so that they have the scale of an average.
    """

    def __init__(  # noqa: D107
        self,
        name: str,
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        predivide: float = 1.0,
        groups: Groups = None,
        process_set: ProcessSet = global_process_set,
        scales_local: bool = True,
        devices: tuple[str, str] = ("", ""),
    ) -> None:
        if predivide != 1.0 and op != Average:
            raise ValueError("gradient_predivide_factor needs op=Average")
        if groups is not None and not (isinstance(groups, list) or groups > 0):
            raise ValueError("groups is a positive number or a list of lists of variables")
        self._name, self._compression, self._dense = name, compression, sparse_as_dense
        self._op, self._scale = op, (1.0 / predivide, predivide)
        self._groups, self.process_set, self._devices = groups, process_set, devices
        self._scales_local = scales_local
        self._local: set = set()

    def keep_local(self, variable: Any) -> None:
        """Leaves the gradient of a variable on its rank."""
        self._local.add(_reference(variable))

    def is_local(self, variable: Any) -> bool:
        """Whether the gradient of a variable stays on its rank."""
        return _reference(variable) in self._local

    @unconverted
    def reduce(
        self, gradients: Sequence[Any], variables: Sequence[Any], generic: bool = False
    ) -> list[Any]:
        """The gradients, reduced; where there is none, ``None`` stays.

        Ranks recognise gradients by the names of the variables; ``generic`` numbers them instead.
        """
        results = [
            tf.convert_to_tensor(gradient)
            if self._dense and isinstance(gradient, tf.IndexedSlices)
            else gradient
            for gradient in gradients
        ]
        members = self.process_set
        if not members.included():
            return results
        shared = []
        for at, (gradient, variable) in enumerate(zip(results, variables)):
            if gradient is None:
                continue
            if not self.is_local(variable):
                shared.append(at)
            elif self._scales_local:
                results[at] = divided(gradient, members)
        if members.size() == 1 and not _ops.outlasts_ranks():
            return results
        names = _names(self._name, variables, generic)
        for part in self._parts(shared, variables):
            self._reduce_part(part, results, [names[at] for at in part])
        return results

    def _parts(self, shared: list[int], variables: Sequence[Any]) -> list[list[int]]:
        """Positions of gradients, divided into groups; without groups, all of them."""
        if self._groups is None or not shared:
            return [shared] if shared else []
        if not isinstance(self._groups, list):
            count = min(self._groups, len(shared))
            size, larger = divmod(len(shared), count)
            ends = [size * (at + 1) + min(at + 1, larger) for at in range(count)]
            return [shared[begin:end] for begin, end in zip([0, *ends], ends)]
        left, parts = dict.fromkeys(shared), []
        for group in self._groups:
            wanted = {_reference(variable) for variable in group}
            part = [at for at in left if _reference(variables[at]) in wanted]
            parts.append(part)
            for at in part:
                del left[at]
        return [part for part in (*parts, *([at] for at in left)) if part]

    def _reduce_part(self, part: list[int], results: list[Any], names: list[str]) -> None:
        """Replaces some of the results by their reductions."""
        dense: list[tuple[int, str]] = []
        slices: list[tuple[int, str]] = []
        for at, name in zip(part, names):
            (slices if isinstance(results[at], tf.IndexedSlices) else dense).append((at, name))
        if slices:
            sparse.check(self._op, 1.0, 1.0)
            with tf.device(self._devices[1]):
                chosen = [results[at] for at, _ in slices]
                labels = [name for _, name in slices]
                members = self.process_set
                reduced = sparse.reduce_each(chosen, labels, self._op, members, True)
            for (at, _), value in zip(slices, reduced):
                results[at] = value
        if dense:
            with tf.device(self._devices[0]):
                self._reduce_dense(dense, results)

    def _reduce_dense(self, dense: list[tuple[int, str]], results: list[Any]) -> None:
        reduction = Reduction(self._op, *self._scale, self.process_set)
        compression = self._compression
        packed = [compression.compress(tf.convert_to_tensor(results[at])) for at, _ in dense]
        small = [tensor for tensor, _ in packed]
        names = [f"allreduce.{name}" for _, name in dense]
        if self._groups is None:
            reduced = _ops.reduce_each(small, names, reduction)
        else:
            reduced = _ops.reduce_together(small, f"group.{names[0]}", reduction)
        for (at, _), value, (_, context) in zip(dense, reduced, packed):
            results[at] = compression.decompress(value, context)


def _reference(variable: Any) -> Any:
    """What tells variables apart: they cannot be compared, because that compares their values."""
    return id(getattr(variable, "value", variable)) if _is_keras(variable) else variable.ref()


def _is_keras(variable: Any) -> bool:
    """Whether it is a variable of Keras 3, which contains TensorFlow's."""
    return not hasattr(variable, "ref")


def _names(prefix: str, variables: Sequence[Any], generic: bool) -> list[str]:
    """A different name for each variable, the same on all ranks."""
    seen: dict[str, int] = {}
    names = []
    for at, variable in enumerate(variables):
        given = getattr(variable, "path", None) or _name_of(variable) or f"grad_{at}"
        name = f"grad_{at}" if generic else re.sub(r":\d+$", "", given)
        times = seen[name] = seen.get(name, -1) + 1
        names.append(f"{prefix}.{name}" + (f"_{times}" if times else ""))
    return names


def _name_of(variable: Any) -> str | None:
    """Its name; tensors have none in eager mode."""
    if tf.executing_eagerly() and isinstance(variable, tf.Tensor):
        return None
    return getattr(variable, "name", None)


def divided(gradient: Any, members: ProcessSet) -> Any:
    """A gradient divided by the number of ranks."""
    if isinstance(gradient, tf.IndexedSlices):
        values = divided(gradient.values, members)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(_ops.size_of(members), gradient.dtype)


def groups_from(num_groups: int, groups: Groups) -> Groups:
    """The groups, from the current argument and the deprecated one."""
    if num_groups:
        warnings.warn("num_groups has been replaced by groups", DeprecationWarning, stacklevel=3)
    return num_groups if num_groups and groups is None else groups
