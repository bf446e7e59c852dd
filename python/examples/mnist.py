"""Handwritten digits and a network for them, for the examples beside this file."""

import digits
import torch
from torch import nn


def load(part: str) -> torch.utils.data.TensorDataset:
    """The images and labels of `train` or `t10k`, scaled as in PyTorch's own example."""
    images, labels = digits.load(part)
    pixels = (torch.tensor(images).reshape(-1, 1, 28, 28) - 0.1307) / 0.3081
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
        right = [
            (model(images).argmax(1).cpu() == labels).float().sum() for images, labels in loader
        ]
    return torch.stack(right).sum() / len(loader.sampler)
