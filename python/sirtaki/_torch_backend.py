"""Makes ``"sirtaki"`` known to ``torch.distributed``.

From version 2.5 on, PyTorch calls ``register`` when it is imported; ``sirtaki.torch`` does it for
older versions. So it must cost nothing: everything else is imported when the first group is made.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Makes the back end known, if this PyTorch supports back ends."""
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "SIRTAKI"):
        return
    # The engine keeps its own record, and groups that are written in Python have no place for
    # PyTorch's.
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if isinstance(recording, set):
        recording.add("sirtaki")
    try:
        dist.Backend.register_backend("sirtaki", _create, devices=["cpu", "cuda"])
    except TypeError:
        # Before PyTorch 2.0 a back end was for all devices.
        dist.Backend.register_backend("sirtaki", _create)


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from sirtaki.torch.distributed import meeting

    return meeting.create(store, rank, size, timeout)
