"""Every file here is run by several ranks at once, once per back end (KERAS_BACKEND).

They make the same calls in the same order, so run it with ``-x``: a rank whose test fails then
leaves the job, and the others learn of it instead of waiting.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

import sirtaki.keras as hvd


def pytest_sessionstart(session):
    hvd.init()


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")
