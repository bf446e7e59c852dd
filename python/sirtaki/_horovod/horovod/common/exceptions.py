"""Horovod's names for our exceptions."""

from sirtaki._errors import Error as HorovodInternalError

__all__ = ["HorovodInternalError"]
