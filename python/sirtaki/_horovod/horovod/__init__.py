"""``horovod`` under ``sirtaki run --horovod``: Sirtaki by the names of Horovod."""

__version__ = "0.28.1"
