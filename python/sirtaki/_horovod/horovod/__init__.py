"""``horovod`` under ``sirtaki run --horovod``: Sirtaki under Horovod's names."""

import sys

from horovod import _missing, _version1
from horovod.runner import run

__all__ = ["run"]

__version__ = "0.28.1"

sys.meta_path.append(_missing.Finder())
_version1.install()
