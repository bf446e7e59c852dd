"""Handwritten digits in NumPy's arrays, for the examples beside this file."""

import gzip
import os
import pathlib

import numpy as np

SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "data"
FOLDER = pathlib.Path(os.environ.get("SIRTAKI_DATA_FOLDER", SHIPPED)) / "mnist"


def load(part: str, folder: pathlib.Path = FOLDER) -> tuple[np.ndarray, np.ndarray]:
    """Images, with numbers from 0 to 1, and labels of `train` or `t10k`."""
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images.astype(np.float32) / 255, labels.astype(np.int32)
