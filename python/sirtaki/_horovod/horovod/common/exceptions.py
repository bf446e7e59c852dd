"""Horovod's names for our exceptions."""

from sirtaki._core.elastic import HostsUpdatedInterrupt
from sirtaki._errors import Error as HorovodInternalError

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Says that the installed version is not the one that is needed."""
    return f"{name} {version} was expected, but {installed_version} is installed"


class HorovodVersionMismatchError(ImportError):
    """Never raised: one wheel serves all versions."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:  # noqa: D107
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version
