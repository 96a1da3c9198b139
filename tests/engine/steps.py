"""Modules with a training_step of their own."""

import torch.nn.functional as F


def step_of(net, step):
    return type("Own", (net,), {"training_step": step})


def mean_loss(self, batch):
    x, y = batch
    return F.cross_entropy(self(x), y)
