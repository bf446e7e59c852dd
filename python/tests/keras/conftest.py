"""Every file here is run by several ranks at once, once per back end (KERAS_BACKEND).

Those marked as ``core`` depend on the back end; the others run on PyTorch only, which is the
quickest. Those marked as ``keras3`` are about what Keras 2 does not have.

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
    config.addinivalue_line("markers", "keras3: about what Keras 2 does not have")


def pytest_collection_modifyitems(config, items):
    is_old = keras.__version__.startswith("2.")
    kept = [one for one in items if not (is_old and one.get_closest_marker("keras3"))]
    if keras.backend.backend() != "torch":
        kept = [one for one in kept if one.get_closest_marker("core")]
    config.hook.pytest_deselected(items=[one for one in items if one not in kept])
    items[:] = kept


def pytest_sessionstart(session):
    hvd.init()


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")
