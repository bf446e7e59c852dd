"""Every file here is run by several ranks at once, once per back end (KERAS_BACKEND).

Those marked as ``core`` depend on the back end; the others run on PyTorch only, which is the
quickest.

Ranks make the same calls in the same order, so run it with ``-x``: a rank whose test fails then
leaves the job, and the others learn of it instead of waiting.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest

import sirtaki.keras as hvd


def pytest_configure(config):
    config.addinivalue_line("markers", "core: depends on the back end")


def pytest_collection_modifyitems(config, items):
    if keras.backend.backend() != "torch":
        core = [one for one in items if one.get_closest_marker("core")]
        config.hook.pytest_deselected(items=[one for one in items if one not in core])
        items[:] = core


def pytest_sessionstart(session):
    hvd.init()


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")
