"""Data by rank: which rank reads which samples, the same in every framework.

A plan says which samples each batch of this rank has. ``Partition`` gives every sample once per
epoch over all ranks, ``Draws`` draws at random. Plans are pure functions of seed, epoch and
position, equal to those of the Rust package, so any number of ranks can continue where others
stopped.

>>> import numpy, sirtaki.data, sirtaki.numpy as hvd
>>> hvd.init()
>>> inputs, labels = numpy.ones((100, 2)), numpy.arange(100)
>>> plan = sirtaki.data.Partition(labels, batch_size=10, last="drop")
>>> for epoch in range(2):
...     plan.set_epoch(epoch)
...     for x, y in sirtaki.data.batches((inputs, labels), plan):
...         assert len(x) == 10

The same plan serves all frameworks:

- NumPy and JAX: ``batches``, or ``take`` for a batch at a time; ``shard`` for a rank's rows.
- PyTorch: ``DataLoader(dataset, batch_sampler=plan)``.
- TensorFlow: ``sirtaki.data.tensorflow``, for ``tf.data``.
- Keras: ``sirtaki.data.keras``, for ``fit``.
"""

from sirtaki.data.arrays import batches, shard, take
from sirtaki.data.plans import Draws, Partition, Position

__all__ = ["Draws", "Partition", "Position", "batches", "shard", "take"]
