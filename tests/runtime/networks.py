"""Networks of a user, who never heard of this project."""

from collections import OrderedDict
from copy import deepcopy

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn


class Awkward(LightningModule):
    """BatchNorm, Dropout, and a dictionary returned from training_step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3))
        self.classifier = nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.body(x))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("seen", loss)
        return {"loss": loss}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Normed(Awkward):
    """The same, with its classifier under the usual name, and 12 features."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.head = self.classifier
        del self.classifier

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Deep(Normed):
    """Two hidden layers, no BatchNorm, and 12 features too."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 12), nn.Tanh())


class Parted(LightningModule):
    """A network in one part with its classifier, a part that torch.compile may wrap."""

    def __init__(self, compiled: bool = False) -> None:
        super().__init__()
        parts = {"body": nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12)), "head": nn.Linear(12, 10)}
        net = nn.Sequential(OrderedDict(parts))
        self.net = torch.compile(net, backend="eager") if compiled else net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Taught(LightningModule):
    """A linear model, and a teacher that follows it slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(64, 10)
        self.teacher = deepcopy(self.net).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.flatten(1))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y) + F.mse_loss(self(x), self.teacher(x.flatten(1)))

    def on_train_batch_end(self, *_: object) -> None:
        with torch.no_grad():
            for slow, own in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(own, 0.1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), lr=0.05)


class BuiltBySetup(LightningModule):
    """A linear model that is built by the hook `setup`."""

    def setup(self, stage: str) -> None:
        self.net = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.flatten(1))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


class BuiltByConfigureModel(BuiltBySetup):
    """The same by the hook `configure_model`."""

    setup = LightningModule.setup

    def configure_model(self) -> None:
        self.net = nn.Linear(64, 10)


class Manual(Parted):
    """Optimises manually, without a word to Lightning about its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        F.cross_entropy(self(batch[0]), batch[1]).backward()
        optimizer.step()


class Scheduled(Parted):
    """Its rate falls in the second round and in the third, of one epoch each."""

    def configure_optimizers(self) -> object:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], 0.1)]
