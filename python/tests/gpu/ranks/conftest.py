"""Every file here is run by several ranks at once, on a machine with a GPU, which they may share.

All ranks meet after each test. One that fails everywhere does not keep the next from running;
after one that failed on some ranks only, nobody knows what the others wait for: the job ends.
"""

import pytest
import torch
import torch.distributed as dist

import sirtaki.torch as hvd


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="only the tests that take minutes")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes, and runs only with --slow")


def pytest_collection_modifyitems(config, items):
    slow = config.getoption("--slow")
    left_out = [item for item in items if ("slow" in item.keywords) != slow]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_sessionstart(session):
    if not torch.cuda.is_available():
        pytest.exit("these tests need a GPU, and PyTorch finds none", returncode=1)
    torch.set_num_threads(1)
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())


@pytest.fixture(autouse=True)
def together():
    torch.manual_seed(1234)
    yield
    torch.cuda.set_sync_debug_mode("default")
    try:
        hvd.barrier()
    except hvd.Error as error:
        pytest.exit(f"the ranks are no longer together: {error}", returncode=1)


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")


@pytest.fixture(scope="session")
def process_group():
    dist.init_process_group("sirtaki")
    yield
    dist.destroy_process_group()
