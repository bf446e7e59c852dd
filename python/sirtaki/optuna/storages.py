"""Where studies are kept: journals, also where scripts name a database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

__all__ = ["InMemoryStorage", "JournalFileBackend", "JournalStorage", "RDBStorage", "journal"]


class InMemoryStorage:
    """Nowhere: the study ends with the process."""


class JournalFileBackend:
    """A journal's file."""

    def __init__(self, file_path: str | os.PathLike[str], lock_obj: Any = None) -> None:
        """At this place."""
        self.file_path = os.fspath(file_path)


class JournalStorage:
    """A journal."""

    def __init__(self, log_storage: JournalFileBackend) -> None:
        """At this place."""
        self.backend = log_storage


class RDBStorage:
    """A database by its address, for which a journal of the same name stands in."""

    def __init__(self, url: str, *args: Any, **options: Any) -> None:
        """At this place."""
        self.url = url


class journal:  # noqa: N801 - a module in Optuna
    """Optuna's module of this name."""

    JournalFileBackend = JournalFileBackend


def path_of(storage: Any) -> str | None:
    """The journal that stands for a storage; none for studies in memory.

    >>> path_of("sqlite:///runs/example.db")
    'runs/example.journal'
    >>> path_of("mysql://user:password@host/studies")
    'runs/studies.journal'
    """
    if storage is None or isinstance(storage, InMemoryStorage):
        return None
    if isinstance(storage, JournalStorage):
        return storage.backend.file_path
    if isinstance(storage, JournalFileBackend):
        return storage.file_path
    address = storage.url if isinstance(storage, RDBStorage) else storage
    if not isinstance(address, (str, os.PathLike)):
        raise TypeError(f"studies cannot be kept in {storage!r}\nhint: name the file of a journal")
    text = os.fspath(address)
    if text.startswith("sqlite:///"):
        return os.fspath(Path(text[len("sqlite:///") :]).with_suffix(".journal"))
    if "://" in text:
        name = re.sub(r"[^\w.-]+", "-", text.rsplit("/", 1)[-1]) or "studies"
        return os.path.join("runs", f"{name}.journal")
    return text
