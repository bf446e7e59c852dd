"""Which rank reads which samples: a pure function of seed, epoch and position.

These are the plans of ``sirtaki::data`` of the Rust package: the same numbers give the same
samples.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sized
from typing import Any, NamedTuple, Union

import numpy as np

from sirtaki._core import job
from sirtaki.data import _random

LASTS = ("keep", "drop", "pad")


class Position(NamedTuple):
    """How far training has come in its data: all that is needed to continue, on any ranks."""

    seed: int = 0
    epoch: int = 0
    seen: int = 0
    """How many samples of this epoch all ranks together have seen."""


class Partition:
    """Every sample exactly once per epoch, over all ranks.

    An epoch is one order of all samples, drawn from (seed, epoch), or their own order if they are
    not to be shuffled. A step takes the next ``size * batch_size`` samples of it, and ranks deal
    them out like cards: rank ``r`` has every ``size``-th one from the ``r``-th. All ranks have the
    same number of batches. What happens to a last step that is too short:

    - ``keep``: it is short; then some ranks have one sample fewer than others, or none, and
      ``weight`` makes up for it;
    - ``drop``: it is left out;
    - ``pad``: it is filled with the first samples of the epoch, which then come twice.

    Iterating gives the indices of one batch after another, from the plan's position on. So a plan
    is a ``batch_sampler`` for PyTorch's ``DataLoader``; call ``set_epoch`` before each epoch.
    Ranks are those of the job, unless ``rank`` and ``size`` say otherwise.

    >>> from sirtaki.data import Partition
    >>> plan = Partition(10, batch_size=2, shuffle=False, rank=1, size=2)
    >>> [indices.tolist() for indices in plan]
    [[1, 3], [5, 7], [9]]
    >>> plan.position(2)
    Position(seed=0, epoch=0, seen=8)
    """

    def __init__(  # noqa: D107
        self,
        samples: int | Sized,
        batch_size: int,
        *,
        seed: int = 0,
        epoch: int = 0,
        seen: int = 0,
        shuffle: bool = True,
        last: str = "keep",
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        self.samples = _count(samples)
        self.batch_size, self.shuffle, self.last = batch_size, shuffle, last
        self.rank, self.size = place(rank, size)
        if batch_size < 1:
            raise ValueError(f"batches of {batch_size} samples cannot be made")
        if last not in LASTS:
            raise ValueError(f"last must be one of {', '.join(LASTS)}, not {last!r}")
        self.seek(Position(seed, epoch, seen))

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._position.epoch

    @property
    def seen(self) -> int:
        """How many samples of the epoch were seen before this plan's first batch."""
        return self._position.seen

    def seek(self, position: Position) -> None:
        """Continues from a position, such as ``position`` returns; it may be of other ranks."""
        position = Position(*position)
        if not 0 <= position.seen <= self.samples:
            raise ValueError(
                f"{position.seen} samples of the epoch are seen already, but there are "
                f"{self.samples}\nhint: continue with the data that training began with"
            )
        self._position = position

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, which has its own order."""
        self.seek(Position(self._position.seed, epoch, 0))

    def position(self, batches: int) -> Position:
        """Where training is after that many batches; after the last one, at the next epoch."""
        seed, epoch, _ = self._position
        if batches < len(self):
            return Position(seed, epoch, self._start(batches))
        return Position(seed, epoch + 1, 0)

    def together(self, batch: int) -> int:
        """How many samples all ranks together have in a batch."""
        left = self.samples - self._start(batch)
        whole = self.batch_size * self.size
        if left < whole and self.last == "pad" and 0 <= batch < len(self):
            return whole
        return max(0, min(left, whole))

    def weight(self, batch: int) -> float:
        """What the mean over this rank's batch must be multiplied by.

        The mean over ranks is the mean over all samples then. It is 1, except in a last batch that
        is kept, where some ranks have one sample fewer.

        >>> from sirtaki.data import Partition
        >>> [Partition(7, 2, rank=rank, size=3).weight(1) for rank in range(3)]
        [3.0, 0.0, 0.0]
        """
        return len(self[batch]) * self.size / max(1, self.together(batch))

    def __len__(self) -> int:
        """How many batches there are from the position to the end of the epoch, on every rank."""
        left, whole = self.samples - self._position.seen, self.batch_size * self.size
        return left // whole if self.last == "drop" else -(-left // whole)

    def __getitem__(self, batch: int) -> np.ndarray[Any, Any]:
        """The samples of this rank's batch of that number, from the plan's position on."""
        if batch < 0:
            batch += len(self)
        if not 0 <= batch < len(self):
            raise IndexError(f"there is no batch {batch} among {len(self)}")
        start = self._start(batch)
        places = np.arange(start + self.rank, start + self.together(batch), self.size)
        if self.last == "pad":
            places %= self.samples
        if not self.shuffle:
            return places
        return _random.order(self.samples, self._position.seed, self._position.epoch)[places]

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        """The samples of each of this rank's batches, from the plan's position on."""
        # Whoever reads ahead is not to notice that the plan is moved to the next epoch.
        plan = copy.copy(self)
        return (plan[batch] for batch in range(len(plan)))

    def _start(self, batch: int) -> int:
        return self._position.seen + batch * self.batch_size * self.size


class Draws:
    """Batches of samples drawn at random, with replacement, by each rank for itself.

    A batch depends only on seed, rank and its number, so resuming means continuing to count, with
    ``first``.

    >>> from sirtaki.data import Draws
    >>> one, other = Draws(100, 3, batches=4, rank=0), Draws(100, 3, batches=2, first=2, rank=0)
    >>> [indices.tolist() for indices in one][2:] == [indices.tolist() for indices in other]
    True
    """

    def __init__(  # noqa: D107
        self,
        samples: int | Sized,
        batch_size: int,
        batches: int,
        *,
        seed: int = 0,
        first: int = 0,
        rank: int | None = None,
    ) -> None:
        self.samples = _count(samples)
        self.batch_size, self.batches, self.seed, self.first = batch_size, batches, seed, first
        self.rank = job.rank() if rank is None else rank
        if self.samples < 1:
            raise ValueError(f"from {self.samples} samples none can be drawn")
        if batch_size < 0 or batches < 0:
            raise ValueError(f"{batches} batches of {batch_size} samples cannot be drawn")

    def __len__(self) -> int:
        """How many batches there are."""
        return self.batches

    def __getitem__(self, batch: int) -> np.ndarray[Any, Any]:
        """The samples of the batch of that number."""
        if not 0 <= batch < self.batches:
            raise IndexError(f"there is no batch {batch} among {self.batches}")
        number = self.first + batch
        return _random.draws(self.samples, self.seed, self.rank, number, self.batch_size)

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        """The samples of each batch."""
        return (self[batch] for batch in range(self.batches))


Plan = Union[Partition, Draws]


def place(rank: int | None, size: int | None) -> tuple[int, int]:
    """A rank and the number of ranks: those of the job, unless both are given."""
    if rank is None and size is None:
        return job.rank(), job.size()
    if rank is None or size is None:
        raise ValueError("rank and size belong together; please give both or none")
    if not 0 <= rank < size:
        raise ValueError(f"there is no rank {rank} of {size}\nhint: ranks are numbered from 0")
    return rank, size


def _count(samples: int | Sized) -> int:
    count = samples if isinstance(samples, int) else len(samples)
    if not 0 <= count < 2**32:
        raise ValueError(f"{count} samples cannot be numbered\nhint: split the data set")
    return count
