"""``tf.GradientTape`` whose gradients are reduced over all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki._core.operations import Average
from sirtaki._core.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow._ops import unconverted
from sirtaki.tensorflow.compression import Compression
from sirtaki.tensorflow.gradients import Gradients, Groups, groups_from


class _DistributedGradientTape(tf.GradientTape):
    """What a tape of any class becomes."""

    _gradients: Gradients

    def register_local_source(self, source: Any) -> None:
        """Leaves the gradient of a variable on its rank."""
        self._gradients.keep_local(source)

    @unconverted
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **others: Any,
    ) -> Any:
        """The gradients, reduced over all ranks."""
        computed = super().gradient(target, sources, output_gradients, **others)
        flat, variables = tf.nest.flatten(computed), tf.nest.flatten(sources)
        reduced = self._gradients.reduce(flat, variables, use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list, list]:
        """Pairs of variables and gradients: those that stay on their rank, and the others."""
        computed = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, computed))
        local = [pair for pair in pairs if self._gradients.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._gradients.is_local(pair[0])]


def DistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape that continues another one, with gradients that are reduced over all ranks.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> weight = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = weight * weight
    >>> float(hvd.DistributedGradientTape(tape).gradient(loss, weight))
    6.0
    """
    kind: Any = type(gradtape)
    if not issubclass(kind, _DistributedGradientTape):
        kind = type(kind.__name__, (_DistributedGradientTape, kind), {})
    # It has the other's recording, and the other one still gives the gradients of this rank.
    tape = kind.__new__(kind)
    tape.__dict__.update(vars(gradtape))
    tape._gradients = Gradients(
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups_from(num_groups, groups),
        process_set,
        scale_local_gradients,
        (device_dense, device_sparse),
    )
    return tape


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As ``DistributedGradientTape``; the gradients of ``local_layers`` stay on their rank.

    >>> import tensorflow as tf, sirtaki.tensorflow as hvd
    >>> hvd.init()
    >>> layer = tf.keras.layers.Dense(1)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(layer(tf.ones([1, 2])))
    >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    >>> len(tape.gradient(loss, layer.trainable_weights))
    2
    """
    layers = [] if local_layers is None else local_layers
    if isinstance(layers, tf.keras.layers.Layer):
        layers = [layers]
    if not all(isinstance(layer, tf.keras.layers.Layer) for layer in layers):
        raise ValueError("local_layers are layers of tf.keras")
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
