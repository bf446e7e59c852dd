"""The ``horovodrun`` command."""

from sirtaki._horovodrun import main as run_commandline
from sirtaki._horovodrun import parse_args

__all__ = ["parse_args", "run_commandline"]
