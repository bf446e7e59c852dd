"""Handwritten digits and a network for them, for the examples beside this file."""

import gzip
import pathlib

import numpy
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "mnist"


def load(part: str, folder: pathlib.Path = FOLDER) -> torch.utils.data.TensorDataset:
    """The images and labels of `train` or `t10k`, from the files of the data set as they are."""
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
    pixels = (torch.tensor(images).float() / 255 - 0.1307) / 0.3081
    return torch.utils.data.TensorDataset(pixels, torch.tensor(labels).long())


class Network(nn.Sequential):
    """Two convolutions and two dense layers, as in many tutorials."""

    def __init__(self, dropout: float = 0.25) -> None:
        """With this share of dropout behind the convolutions, and twice as much in between."""
        super().__init__(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(12 * 12 * 64, 128),
            nn.ReLU(),
            nn.Dropout(2 * dropout),
            nn.Linear(128, 10),
        )


def share_recognised(model: nn.Module, loader: torch.utils.data.DataLoader) -> torch.Tensor:
    """The share of the loader's images that the model recognises."""
    model.eval()
    with torch.no_grad():
        right = [(model(images).argmax(1) == labels).float().sum() for images, labels in loader]
    return torch.stack(right).sum() / len(loader.sampler)
