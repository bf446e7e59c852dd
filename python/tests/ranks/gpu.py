"""What the tests with a GPU share: the device of this rank, and something that keeps it busy."""

import pytest
import torch

import sirtaki.torch as hvd

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

DEVICE = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
LARGE = 3_000_001


def slow():
    """Work that keeps the current stream busy for a while."""
    matrix = torch.ones(4096, 4096, device=DEVICE)
    for _ in range(20):
        matrix = matrix @ matrix * 1e-4
    return matrix
