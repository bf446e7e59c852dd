"""Tests that need a GPU: ``ranks`` is run by several ranks at once, the files here start jobs."""

import pytest
import torch


def pytest_addoption(parser):
    parser.addoption("--repeat", type=int, default=3, help="how often a rank is killed")


def pytest_sessionstart(session):
    if not torch.cuda.is_available():
        pytest.exit("these tests need a GPU, and PyTorch finds none", returncode=1)
