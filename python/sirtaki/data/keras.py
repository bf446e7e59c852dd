"""Keras' data sets by rank, for Keras 3 (``PyDataset``) and Keras 2 (``Sequence``)."""

from __future__ import annotations

from typing import Any

from sirtaki.data import arrays as _arrays
from sirtaki.data.plans import Partition, Plan, place


def from_arrays(arrays: Any, plan: Plan, **options: Any) -> Any:
    """A data set for ``fit`` with the batches of a plan, from arrays.

    ``arrays`` is what ``fit`` takes: a tuple of inputs and targets, possibly with weights of
    samples. Give ``fit`` the callback ``epochs(plan)``, too, so that every epoch has an order of
    its own. ``options`` are those of ``keras.utils.PyDataset``.

    >>> import numpy
    >>> from sirtaki.data import Partition
    >>> from sirtaki.data.keras import from_arrays
    >>> plan = Partition(9, batch_size=2, last="pad", rank=0, size=2)
    >>> dataset = from_arrays((numpy.ones((9, 2)), numpy.ones(9)), plan)
    >>> len(dataset), dataset[2][0].shape
    (3, (2, 2))
    """
    _arrays.check(arrays, plan)
    if isinstance(plan, Partition) and plan.seen:
        raise ValueError(
            f"{plan.seen} samples of the epoch are seen already, but fit() takes all epochs to be "
            "as long as the first one\n"
            "hint: train the rest of the epoch with sirtaki.data.batches() and train_on_batch()"
        )
    return _kind(_Batches)(arrays, plan, **options)


def epochs(plan: Partition) -> Any:
    """A callback for ``fit`` that begins the epochs of a plan.

    It comes from the number that ``fit`` counts, with ``initial_epoch``, because Keras tells data
    sets of an epoch's end even if it has only looked at the first batch.

    >>> from sirtaki.data import Partition
    >>> from sirtaki.data.keras import epochs
    >>> plan = Partition(9, batch_size=2, rank=0, size=2)
    >>> epochs(plan).on_epoch_begin(3)
    >>> plan.epoch
    3
    """
    import keras

    class Epochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            plan.set_epoch(epoch)

    return Epochs()


def shard(
    sequence: Any, *, rank: int | None = None, size: int | None = None, **options: Any
) -> Any:
    """Every ``size``-th batch of another data set of Keras, from this rank's first one on.

    All ranks have the same number of batches; those that would be left over are left out.

    >>> import numpy
    >>> from sirtaki.data import Partition
    >>> from sirtaki.data.keras import from_arrays, shard
    >>> whole = from_arrays(numpy.arange(10), Partition(10, 2, shuffle=False, rank=0, size=1))
    >>> mine = shard(whole, rank=1, size=2)
    >>> len(mine), mine[0].tolist(), mine[1].tolist()
    (2, [2, 3], [6, 7])
    """
    return _kind(_Shard)(sequence, place(rank, size), **options)


class _Batches:
    """Batches of arrays in the order of a plan."""

    def __init__(self, arrays: Any, plan: Plan, **options: Any) -> None:
        super().__init__(**options)
        self._arrays, self._plan = arrays, plan

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> Any:
        return _arrays.take(self._arrays, self._plan[index])


class _Shard:
    """A part of the batches of another data set."""

    def __init__(self, whole: Any, place: tuple[int, int], **options: Any) -> None:
        super().__init__(**options)
        self._whole, (self._rank, self._size) = whole, place

    def __len__(self) -> int:
        return len(self._whole) // self._size

    def __getitem__(self, index: int) -> Any:
        return self._whole[index * self._size + self._rank]

    def on_epoch_begin(self) -> None:
        if hasattr(self._whole, "on_epoch_begin"):
            self._whole.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._whole.on_epoch_end()


def _kind(part: type) -> Any:
    """A class of Keras' data sets with this behaviour."""
    import keras

    base = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence
    return type(part.__name__.strip("_"), (part, base), {})
