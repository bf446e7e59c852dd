"""Every file here is run by several ranks at once, with one process of pytest per rank.

They make the same calls in the same order, so run it with ``-x``: a rank whose test fails then
leaves the job, and the others learn of it instead of waiting.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# One thread for arithmetic: the ranks share the machine's cores.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import pytest

import sirtaki.jax as hvd


def pytest_sessionstart(session):
    hvd.init()


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")


@pytest.fixture(scope="session")
def even():
    """The ranks with even numbers, as a process set; all ranks if there is only one."""
    if hvd.size() == 1:
        return hvd.global_process_set
    return hvd.add_process_set(range(0, hvd.size(), 2))
