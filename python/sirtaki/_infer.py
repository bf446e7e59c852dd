"""``sirtaki.infer``: a network on a volume larger than memory, with the result of the whole."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import zlib
from collections.abc import Sequence
from typing import Any, Callable

from sirtaki import _native

_PLACE = (("RANK", "0"), ("SIZE", "1"))


def infer(
    model: Callable[[Any], Any],
    source: str | os.PathLike[str],
    sink: str | os.PathLike[str],
    *,
    halo: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    tolerance: float | None = None,
    output: str = "values",
    normalise: str | tuple[float, float] | None = None,
    channels: Sequence[int] | None = None,
    region: Sequence[tuple[int, int | None]] | None = None,
    mask: str | os.PathLike[str] | None = None,
    tile: Sequence[int] | None = None,
    chunk: Sequence[int] | None = None,
    memory: int = 512 << 20,
    allow_nan: bool = False,
    replace: bool = False,
    join: bool = False,
) -> dict[str, Any]:
    """Applies ``model`` to the volume in ``source`` and writes the result to ``sink``.

    The model is called with tiles of shape ``(1, channels, *sizes)`` in single precision and gives
    as many voxels as it gets. A module of PyTorch gets tensors, everything else NumPy's arrays.
    ``halo`` is how far it looks from each voxel, ``stride`` the step in which it moves (4 with two
    poolings by 2); both are checked with noise before anything is written. For networks in ONNX,
    the command ``sirtaki infer`` finds them by itself. With ``tolerance=1e-3``, tiles are read
    with the smallest halo whose error is at most a thousandth of the output's standard deviation,
    measured with noise on volumes for which ``memory`` is enough.

    >>> import numpy as np, os, sirtaki, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> volume = np.arange(4096, dtype="float32").reshape(16, 16, 16)
    >>> np.save(os.path.join(folder, "in.npy"), volume)
    >>> def blur(x):
    ...     padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0)))
    ...     return padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    >>> done = sirtaki.infer(
    ...     blur, os.path.join(folder, "in.npy"), os.path.join(folder, "out.npy"), halo=1
    ... )
    >>> float(np.load(os.path.join(folder, "out.npy"))[1, 0, 0])
    768.0

    Under ``sirtaki run -n 4`` the ranks share the work, and so do independent processes with
    ``join=True``; whoever comes last completes the output. After a crash, the same call continues.

    ``output`` is ``"values"``, ``"argmax"``, ``"probabilities"`` or ``"labels"``, which numbers
    the objects of the whole volume. ``normalise`` scales the input by statistics of the whole
    volume: ``"mean"`` for mean 0 and standard deviation 1, or two percentiles that become 0 and 1.
    ``region`` has the first voxel and the one behind the last for each axis. Returns what this
    process has done: its tiles, the seconds that it read, computed and wrote, and the ``halo``
    along each axis.

    PyTorch picks other kernels of oneDNN for other shapes, whose last bits differ; inside
    ``torch.backends.mkldnn.flags(enabled=False)`` tiles are equal to the whole in every bit.
    """
    rank, size = (int(os.environ.get(f"SIRTAKI_{name}", number)) for name, number in _PLACE)
    if replace and (join or size > 1):
        raise ValueError(
            "an output that exists is replaced by one process alone; delete it before"
        )
    asked = {
        "settings": {
            "model": _name(model),
            "input": os.path.abspath(source),
            "output": os.path.abspath(sink),
            "choices": {},
            "content": output,
            "channels": None if channels is None else list(channels),
            "region": None if region is None else [list(span) for span in region],
            "mask": None if mask is None else os.path.abspath(mask),
            "tile": None if tile is None else list(tile),
            "chunk": None if chunk is None else list(chunk),
            "tolerance": tolerance,
            "inexact": False,
            "normalise": _scaling(normalise),
            "allow_nan": allow_nan,
            "replace": replace,
        },
        "halo": [halo] if isinstance(halo, int) else list(halo),
        "stride": [stride] if isinstance(stride, int) else list(stride),
        "sum": _sum(model),
        "memory": memory,
        "name": f"{socket.gethostname()}:{os.getpid()}",
        "rank": rank,
        "size": size,
        "join": join,
    }
    return dict(json.loads(_native.infer(_adapted(model), json.dumps(asked))))


def _scaling(normalise: str | tuple[float, float] | None) -> Any:
    """What ``normalise`` says, as the compiled part reads it."""
    if normalise is None or normalise == "mean":
        return normalise
    if isinstance(normalise, str):
        raise ValueError('normalise is "mean" or two percentiles, such as (1, 99)')
    low, high = normalise
    return {"percentiles": [float(low), float(high)]}


def _is_torch(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _name(model: Any) -> str:
    return str(getattr(model, "__qualname__", type(model).__qualname__))


def _sum(model: Any) -> int:
    """A number that differs for a module of PyTorch with other weights."""
    if not _is_torch(model):
        return 0
    total = 0
    for name, tensor in model.state_dict().items():
        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), total)
        total = zlib.crc32(name.encode(), total)
    return total


def _adapted(model: Any) -> Callable[[int, list[int]], tuple[int, list[int], Any]]:
    """The model as a function of addresses: the memory of a tile in, that of the result out."""
    import numpy as np

    def compute(array: Any) -> Any:
        if not _is_torch(model):
            return model(array)
        import torch

        with torch.no_grad():
            return model(torch.from_numpy(array)).cpu().numpy()

    def call(address: int, sizes: list[int]) -> tuple[int, list[int], Any]:
        count = int(np.prod(sizes))
        tile = np.frombuffer((ctypes.c_float * count).from_address(address), dtype=np.float32)
        result = np.ascontiguousarray(compute(tile.reshape(1, *sizes)), dtype=np.float32)
        if result.ndim != len(sizes) + 1 or result.shape[0] != 1:
            raise ValueError(f"the model made {result.shape} of {(1, *sizes)}")
        return result.ctypes.data, list(result.shape[1:]), result

    return call
