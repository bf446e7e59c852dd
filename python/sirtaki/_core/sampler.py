"""A sampler that knows which part of an epoch is done, and deals out the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

from sirtaki._core import job


class ElasticSampler:
    """Deals out a dataset to all ranks; after a failure it continues where it was.

    Call ``record_batch`` after every batch and ``set_epoch`` after every epoch, and make it an
    attribute of the state.

    >>> import sirtaki.numpy as hvd
    >>> hvd.init()
    >>> sampler = hvd.elastic.ElasticSampler(range(8), shuffle=False)
    >>> sampler.record_batch(0, batch_size=2)
    >>> sampler.reset()
    >>> list(sampler)
    [2, 3, 4, 5, 6, 7]
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, which has its own order."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that every rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Its position in the epoch."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues at the position of another sampler."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deals out what is not processed yet to the current ranks."""
        self.num_replicas, self.rank = job.size(), job.rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        rest = self.remaining_indices
        # All ranks get the same number: the first ones are dealt out again where some are missing.
        return iter(
            [rest[at % len(rest)] for at in range(self.rank, self.total_size, self.num_replicas)]
        )

    def __len__(self) -> int:
        return self.num_samples
