"""A process's place in its job, as an object like Horovod's."""

from __future__ import annotations

from sirtaki._core import capabilities, job, operations, process_sets

__all__ = ["HorovodBasics"]


class HorovodBasics:
    """All of these are functions of ``horovod.torch`` and the other front ends, too."""

    Average, Sum, Adasum, Min, Max, Product = range(6)

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        """The arguments say where Horovod's library is, and have no meaning here."""

    def __getattr__(self, name: str) -> object:  # noqa: D105
        for place in (job, operations, process_sets, capabilities):
            if hasattr(place, name) and not name.startswith("_"):
                return getattr(place, name)
        raise AttributeError(f"HorovodBasics has no attribute {name!r}")
