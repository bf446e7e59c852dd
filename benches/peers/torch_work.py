"""What torch_peer.py trains: networks with their batches, optimizers and losses. Inputs are made up, and stay the same."""

import torch
from torch import nn

from common import resnet


class Cnn:
    """The network of many tutorials for MNIST: 1.2 million parameters, much arithmetic for each of them."""

    samples = 64

    def __init__(self):
        features = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
        dense = [nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
        self.model = nn.Sequential(*features, nn.Flatten(), *dense)
        self.inputs, self.labels = torch.randn(self.samples, 1, 28, 28), torch.randint(10, (self.samples,))

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def loss(self, model):
        return nn.functional.cross_entropy(model(self.inputs), self.labels)


class Mlp(Cnn):
    """17 million parameters and little arithmetic for each of them."""

    samples = 32

    def __init__(self):
        layers = [layer for _ in range(4) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(2048, 10))
        self.inputs, self.labels = torch.randn(self.samples, 2048), torch.randint(10, (self.samples,))


class Transformer(Cnn):
    """Four layers of 256 numbers per word, 64 words: 53 tensors, most of them small."""

    samples, words, vocabulary, width = 8, 64, 1000, 256

    def __init__(self):
        layer = nn.TransformerEncoderLayer(self.width, 4, 1024, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 4)
        embedding = nn.Embedding(self.vocabulary, self.width)
        self.model = nn.Sequential(embedding, encoder, nn.Linear(self.width, self.vocabulary))
        self.inputs = torch.randint(self.vocabulary, (self.samples, self.words))
        self.labels = torch.randint(self.vocabulary, (self.samples * self.words,))

    def optimizer(self, parameters):
        return torch.optim.Adam(parameters, lr=1e-4)

    def loss(self, model):
        return nn.functional.cross_entropy(model(self.inputs).flatten(0, 1), self.labels)


class Given(torch.autograd.Function):
    """A layer that computes nothing; the gradient of its weight is there as soon as it is asked for."""

    @staticmethod
    def forward(ctx, inputs, weight):
        ctx.shape = weight.shape
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, torch.full(ctx.shape, 1e-3)


class Chain(nn.Module):
    """As many weights as ResNet-50 has, whose gradients come one after another, the last layer's first."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in resnet())

    def forward(self, inputs):
        for weight in self.weights:
            inputs = Given.apply(inputs, weight)
        return inputs


class Resnet(Cnn):
    """The tensors of ResNet-50 and nothing to compute: 161 of them, 102 MB."""

    samples = 1

    def __init__(self):
        self.model = Chain()
        self.inputs = torch.zeros(1, requires_grad=True)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01)

    def loss(self, model):
        return model(self.inputs).sum()


WORKS = {"cnn": Cnn, "mlp": Mlp, "transformer": Transformer, "resnet": Resnet}
