"""MOON: model-contrastive federated learning (Li, He, Song; CVPR 2021).

Private: the client's last trained model. Up and down: the whole model, as in FedAvg. The loss of a batch draws its
features to those of the received model and away from those of the client's last one, both frozen, in evaluation mode.

Where we decide:
- Features are the head's input, so that all methods of a comparison have one network. The paper's networks have a
  projection between body and head, for all methods: `projection=256`.
- A client that has not trained yet has no contrastive term; the authors' code has none in round 1, and later takes the
  client's random start. The last model is that of the client's last participation; the code can hold several.
- mu is 1, as in the code; the paper chooses it from 0.1, 1, 5 and 10.
- The frozen models' features are computed once a round, for all images; where batches are augmented, for each as it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.engine.fit import Batches
from fedbench.engine.losses import task_loss_through
from fedbench.methods.base import About, Method, ModelFacts
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Upload
from fedbench.module import seeds
from fedbench.module.additions import Addition, add_before_head, head_of_width
from fedbench.module.layout import Layout
from fedbench.module.weights import Weights


class MOON(Method["MOON.Options", "MOON.State"]):
    """Features are kept close to the global model's and away from the client's last model's."""

    about = About(
        "features near the global model's, far from the client's last ones", "global", "Li et al., CVPR", 2021
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.mu": 0}}

    class Options(Method.Options):
        mu: float = Field(1.0, ge=0, description="weight of the contrastive term, eq. 4")
        temperature: float = Field(0.5, gt=0, description="temperature of the cosines, tau in eq. 3")
        projection: int | None = Field(None, ge=1, description="width of two layers put before the head; none: no such")

    @dataclass
    class State(PrivateState):
        previous: Weights | None = None

    needs = frozenset({"head"})

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        if options.projection:
            with seeds.preserved_torch_stream():
                seeds.seed_torch(seeds.derive(facts.seed, "projection"))
                width = head_of_width(module, layout, options.projection)
                add_before_head(module, layout, "projection", Projection(width, options.projection))

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("a contrastive loss")
        return ()

    def train(self, client: Client[State], received: Weights) -> Upload:
        previous, loss, learner = client.state.previous, None, client.learner
        if previous is not None and self.options.mu:

            def teach(data: Batches) -> Tensor:
                """Features of the received and the previous model `[n, 2, d]`."""
                both = [learner.features(model, data).flatten(1) for model in (received, previous)]
                return torch.stack(both, 1).to(learner.dtype)

            function = partial(contrasted_loss, head=self.context.layout.head_name or "")
            weights = {"mu": self.options.mu, "temperature": self.options.temperature}
            loss = client.distillation_loss(function, teach, client.train, **weights)
        trained = client.fit(received, client.train, loss=loss)
        if self.options.mu:
            client.state.previous = trained
        return self.upload(client, trained)


class Projection(Addition):
    """Two layers between body and head, as in the paper."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, width))

    def forward(self, features: Tensor) -> Tensor:
        projection: Tensor = self.layers(features)
        return projection


def contrasted_loss(net: LightningModule, batch: Any, s: Any, teacher: Tensor, head: str) -> Tensor:
    """The client's own loss plus mu times the contrastive term; teacher: features of both frozen models `[b, 2, d]`."""
    loss, features, _ = task_loss_through(net, batch, head)
    with torch.autocast(teacher.device.type, enabled=False):
        features = features.flatten(1).to(teacher)
        return loss.to(teacher) + s.mu * contrastive_loss(features, teacher[:, 0], teacher[:, 1], s.temperature)


def contrastive_loss(features: Tensor, common: Tensor, previous: Tensor, temperature: float | Tensor) -> Tensor:
    """Mean contrastive loss (eq. 3) of features `[b, d]` to those of the received and the previous model."""
    near, far = (F.cosine_similarity(features, other, dim=1) for other in (common, previous))
    return F.softplus((far - near) / temperature).mean()
