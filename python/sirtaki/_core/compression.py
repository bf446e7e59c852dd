"""How tensors become smaller before they are sent, whatever the framework."""

from __future__ import annotations

from typing import Any


class Compressor:
    """How a tensor is converted to a smaller one and back. Users may supply their own."""

    wire: str | None = None
    """The type to which the engine itself converts single precision for sending."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The smaller tensor, and whatever is needed to undo that."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Undoes it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor
