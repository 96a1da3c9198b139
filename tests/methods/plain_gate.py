"""pFedGate's gate in plain PyTorch, as the paper writes it down: what ours and its gradient are compared with."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class PlainNorm(nn.Module):
    """Switchable normalisation of images `[n, c, h, w]`, pixel by pixel."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mean_mix, self.var_mix = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean((2, 3)), x.var((2, 3))
        square = var + mean.square()
        layer_mean = mean.mean(1, keepdim=True)
        layer_var = square.mean(1, keepdim=True) - layer_mean.square()
        batch_mean, batch_var = self.running_mean, self.running_var
        if self.training:
            batch_mean = mean.mean(0)
            batch_var = square.mean(0) - batch_mean.square()
            with torch.no_grad():
                self.running_mean.mul_(0.9).add_(0.1 * batch_mean)
                self.running_var.mul_(0.9).add_(0.1 * batch_var)
        a, b = self.mean_mix.softmax(0), self.var_mix.softmax(0)
        mean = a[0] * mean + a[1] * layer_mean + a[2] * batch_mean
        var = b[0] * var + b[1] * layer_var + b[2] * batch_var
        normal = (x - mean[..., None, None]) / (var[..., None, None] + 1e-5).sqrt()
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


class PlainGate(nn.Module):
    """The same names as `fedbench.methods.gates.Gate`, so that either loads the other's state."""

    def __init__(self, shape: Sequence[int], blocks: int, switch: bool) -> None:
        super().__init__()
        self.norm = PlainNorm(shape[0]) if switch else nn.Identity()
        self.linear = nn.Linear(torch.Size(shape).numel(), blocks)
        self.batchnorm = nn.BatchNorm1d(blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.batchnorm(self.linear(self.norm(x).flatten(1))).sigmoid().mean(0)
