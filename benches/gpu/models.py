"""What is trained, written out: ResNet-50 and a GPT of 124 million parameters. Inputs are made up, and stay the same."""

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.body = nn.Sequential(
            *normed(nn.Conv2d(before, width, 1, bias=False)),
            nn.ReLU(inplace=True),
            *normed(nn.Conv2d(width, width, 3, stride, 1, bias=False)),
            nn.ReLU(inplace=True),
            *normed(nn.Conv2d(width, after, 1, bias=False)),
        )
        same = before == after and stride == 1
        shortcut = nn.Conv2d(before, after, 1, stride, bias=False)
        self.shortcut = nn.Identity() if same else nn.Sequential(*normed(shortcut))

    def forward(self, images):
        return functional.relu(self.body(images) + self.shortcut(images), inplace=True)


def normed(convolution):
    return convolution, nn.BatchNorm2d(convolution.out_channels)


def resnet50():
    layers = [
        *normed(nn.Conv2d(3, 64, 7, 2, 3, bias=False)),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            layers.append(
                Bottleneck(channels, 64 << stage, 2 if stage and block == 0 else 1)
            )
            channels = 256 << stage
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)
    )


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, words):
        batch, length, width = words.shape
        parts = self.attend(self.before(words)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True
        )
        words = words + self.project(
            mixed.transpose(1, 2).reshape(batch, length, width)
        )
        return words + self.think(self.between(words))


class Gpt(nn.Module):
    """The sizes of the smallest GPT-2; the embedding matrix is used at both ends."""

    words, length, width, layers, heads = 50304, 1024, 768, 12, 12

    def __init__(self):
        super().__init__()
        self.embedding, self.position = (
            nn.Embedding(self.words, self.width),
            nn.Embedding(self.length, self.width),
        )
        self.blocks = nn.Sequential(
            *(Block(self.width, self.heads) for _ in range(self.layers))
        )
        self.norm = nn.LayerNorm(self.width)

    def forward(self, words):
        hidden = self.embedding(words) + self.position.weight[: words.shape[1]]
        return functional.linear(self.norm(self.blocks(hidden)), self.embedding.weight)


class Resnet:
    name, samples, unit = "ResNet-50", 64, "images/s"

    def __init__(self, device):
        self.model = resnet50().to(device, memory_format=torch.channels_last)
        images = torch.randn(self.samples, 3, 224, 224, device=device)
        self.inputs = images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(1000, (self.samples,), device=device)

    def optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def loss(self, model):
        return functional.cross_entropy(model(self.inputs), self.labels)


class Text:
    name, samples, unit = "GPT 124 M", 4, "texts/s"

    def __init__(self, device):
        self.model = Gpt().to(device)
        self.inputs = torch.randint(
            Gpt.words, (self.samples, Gpt.length), device=device
        )

    def optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def loss(self, model):
        guesses = model(self.inputs[:, :-1])
        return functional.cross_entropy(
            guesses.flatten(0, 1), self.inputs[:, 1:].flatten()
        )


WORKS = [Resnet, Text]
