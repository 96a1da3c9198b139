"""pFedGate's gate: a private module that looks at a batch and gives every block of the model a factor."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class SwitchNorm(nn.Module):
    """Switchable normalisation of images `[n, c, h, w]`: learned mixtures of instance, layer and batch statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mean_mix, self.var_mix = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean((2, 3)), x.var((2, 3))  # [n, c]
        square = var + mean.square()
        layer_mean = mean.mean(1, keepdim=True)
        layer_var = square.mean(1, keepdim=True) - layer_mean.square()
        batch_mean, batch_var = self.running_mean, self.running_var
        if self.training:
            batch_mean = mean.mean(0)
            batch_var = square.mean(0) - batch_mean.square()
            self.running_mean.lerp_(batch_mean, 0.1)
            self.running_var.lerp_(batch_var, 0.1)
        a, b = self.mean_mix.softmax(0), self.var_mix.softmax(0)
        mean = a[0] * mean + a[1] * layer_mean + a[2] * batch_mean
        var = b[0] * var + b[1] * layer_var + b[2] * batch_var
        scale = self.weight * (var + 1e-5).rsqrt()
        return x * scale[..., None, None] + (self.bias - mean * scale)[..., None, None]


class Gate(nn.Module):
    """Factors `[L]` of the blocks for a batch: the mean over it of sigmoid(BatchNorm(Linear(flat input)))."""

    def __init__(self, shape: Sequence[int], blocks: int, switch: bool) -> None:
        super().__init__()
        self.norm = SwitchNorm(shape[0]) if switch else nn.Identity()
        self.linear = nn.Linear(torch.Size(shape).numel(), blocks)
        self.batchnorm = nn.BatchNorm1d(blocks)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.batchnorm(self.linear(self.norm(x).flatten(1)))
        return scores.sigmoid().mean(0)


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
