"""Small data, small modules and learners of both engines."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.engine.fit import Fit
from fedbench.engine.learner import Learner


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Blobs:
    """n random images with learnable labels."""

    def __init__(self, n: int, shape: tuple[int, ...] = (6,), key: tuple = (0, 1, 2), classes: int = 3) -> None:
        draw = torch.Generator().manual_seed(n)
        self.x = torch.randn(n, *shape, generator=draw)
        self.y = self.x.flatten(1)[:, :classes].argmax(1)
        self.key, self.memory_format, self.dtype = key, torch.contiguous_format, torch.float32

    def __len__(self) -> int:
        return len(self.y)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index].to(self.dtype).contiguous(memory_format=self.memory_format), self.y[index]


@pytest.fixture
def blobs() -> Callable[..., Blobs]:
    return Blobs


class Net(LightningModule):
    """6 -> 5 -> 3 with SGD of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


@pytest.fixture
def net() -> type[Net]:
    return Net


class ConvNet(Net):
    """A convolution, BatchNorm, Dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(64, 5)
        )


@pytest.fixture
def conv_net() -> type[ConvNet]:
    return ConvNet


@pytest.fixture
def learner() -> Callable[..., Learner]:
    """Builds the learner of a module class, always with the same initial weights."""

    def build(kind: Callable[[], LightningModule], optimizer: str = "module", head: str | None = None, **train: Any):
        torch.manual_seed(7)
        options = {"epochs": 2, "batch_size": 4, **train}
        return Learner(kind(), TrainConfig(**options), optimizer=optimizer, head=head)

    return build


def same(a: Any, b: Any) -> bool:
    """Whether two Weights are equal bit by bit."""
    pairs = ((a.params, b.params), (a.buffers, b.buffers), (a.counters, b.counters))
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.fixture(name="same")
def _same() -> Callable[[Any, Any], bool]:
    return same


@pytest.fixture
def fit(learner, blobs):
    """Trains a module class for one round and returns its learner."""

    def train(kind, data=None, **options):
        trained = learner(kind, **options)
        trained.fit(Fit(trained.initial(), data or blobs(18)))
        return trained

    return train
