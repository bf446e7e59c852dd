"""``horovod`` under ``sirtaki run --horovod``: Sirtaki by the names of Horovod."""

from horovod.runner import run

__all__ = ["run"]

__version__ = "0.28.1"
