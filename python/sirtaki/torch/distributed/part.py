"""What the parts of a group expect of each other."""

from __future__ import annotations

from typing import Any


class Part:
    """A part of a group; the group is made from all of them."""

    _rank: int
    _size: int
    _submit: Any
    """Submits a collective, under a name that is chosen here."""
    _gather: Any
    """Gathers tensors, of any size."""
