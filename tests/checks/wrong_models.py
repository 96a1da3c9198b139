"""Models that are wrong in a way that their training does not show, each with the check that finds it."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import nn

SEEN: dict[str, int] = {"batches": 0}


class Net(LightningModule):
    """Right: a perceptron with an optimiser of its own."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ForgetsHead(Net):
    """Its optimiser lacks the head."""

    found_by, words = "parameters", "head.weight, head.bias are in no optimiser"

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.body.parameters(), lr=0.1)


class UnusedLayer(Net):
    """A layer that the loss does not depend on."""

    found_by, words = "parameters", "unused.weight does not change in"

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.unused = nn.Linear(3, 3)


class CountsInGlobal(Net):
    """The weight of its loss falls with the batches of all clients so far."""

    found_by, words = "clients", "something goes from one client to the next"

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        SEEN["batches"] += 1
        return super().training_step(batch, batch_idx) / SEEN["batches"]


class OwnGenerator(Net):
    """Noise of a generator that nobody seeds."""

    found_by, words = "random", "two equal fits end with other weights"

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        noise = torch.as_tensor(np.random.default_rng().normal(size=x.shape), dtype=x.dtype)
        return F.cross_entropy(self(x + noise), y)


class WaitsForHook(Net):
    """Freezes its body in a hook that is called when a checkpoint is loaded."""

    found_by, words = "hooks", "WaitsForHook.on_load_checkpoint is called by no engine"

    def on_load_checkpoint(self, checkpoint: Any) -> None:
        self.body.requires_grad_(False)


class EvaluationMoves(Net):
    """Counts what it sees in a buffer, in evaluation too."""

    found_by, words = "outputs", "evaluation changes the buffer seen"

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.seen += len(x)
        return super().forward(x)


class KeepsInAttribute(Net):
    """A running scale in a plain attribute, which no client keeps."""

    found_by, words = "buffers", "its code changes self.scale, which stays with no client"

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.scale = torch.ones(())

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.scale = 0.9 * self.scale
        return super().training_step(batch, batch_idx)


WRONG = [ForgetsHead, UnusedLayer, CountsInGlobal, OwnGenerator, WaitsForHook, EvaluationMoves, KeepsInAttribute]
