"""How much is said: Optuna's levels, for the logger ``sirtaki.optuna``."""

from __future__ import annotations

import logging as _logging
from logging import CRITICAL, DEBUG, ERROR, FATAL, INFO, WARN, WARNING

__all__ = [
    "CRITICAL",
    "DEBUG",
    "ERROR",
    "FATAL",
    "INFO",
    "WARN",
    "WARNING",
    "disable_default_handler",
    "enable_default_handler",
    "get_logger",
    "get_verbosity",
    "set_verbosity",
]

_logger = _logging.getLogger("sirtaki.optuna")


def get_logger(name: str = "sirtaki.optuna") -> _logging.Logger:
    """The logger of this name."""
    return _logging.getLogger(name)


def get_verbosity() -> int:
    """The level from which messages are shown."""
    return _logger.getEffectiveLevel()


def set_verbosity(verbosity: int) -> None:
    """Show messages from this level on."""
    _logger.setLevel(verbosity)


def enable_default_handler() -> None:
    """Write messages to standard error."""
    if not _logger.handlers:
        _logger.addHandler(_logging.StreamHandler())


def disable_default_handler() -> None:
    """Leave messages to the program's own handlers."""
    _logger.handlers.clear()
