"""Every file here is run by several ranks at once, with one process of pytest per rank.

They make the same calls in the same order, so run it with ``-x``: a rank whose test fails then
leaves the job, and the others learn of it instead of waiting.
"""

import pytest
import torch
import torch.distributed as dist

import sirtaki.torch as hvd


def pytest_sessionstart(session):
    torch.set_num_threads(1)
    hvd.init()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")


@pytest.fixture(scope="session")
def process_group():
    """Once for all files: older versions of PyTorch may meet in a store that is being closed."""
    dist.init_process_group("sirtaki")
    yield
    dist.destroy_process_group()
