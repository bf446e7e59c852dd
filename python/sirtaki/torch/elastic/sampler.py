"""A sampler that knows which part of an epoch is done, and deals out the rest."""

from __future__ import annotations

import torch

from sirtaki._core import sampler


class ElasticSampler(sampler.ElasticSampler, torch.utils.data.Sampler):
    """Deals out a dataset to all ranks; after a failure it continues where it was.

    Call ``record_batch`` after every batch and ``set_epoch`` after every epoch, and make it an
    attribute of the ``TorchState``.

    >>> import sirtaki.torch as hvd
    >>> hvd.init()
    >>> sampler = hvd.elastic.ElasticSampler(range(8), shuffle=False)
    >>> sampler.record_batch(0, batch_size=2)
    >>> sampler.reset()
    >>> list(sampler)
    [2, 3, 4, 5, 6, 7]
    """
