"""GPFL: global and personalised feature information (Zhang, Hua, Wang, Song, Xue, Ma, Cao, Guan; ICCV 2023).

Private: the head, and the client's class shares. Up and down: body, class embeddings, and a valve that scales and
shifts features by a conditional input: for the head the client's own mixture of embeddings, for the guidance their
plain mean. The guided features are drawn to their class's embedding, in angle and in place.

Where we decide:
- Conditional inputs come from the received embeddings, in every round (paper). The authors' code takes those that
  the client held before, and zeros in round 1.
- The magnitude term is the norm over the whole batch, as in the code, with which lam was tuned; the paper's is a mean
  of the images' norms (`magnitude_form=sample`).
- The regulariser of embeddings and valve is weight decay with mu of their own. With a model's own optimiser it comes on
  top of what that does.
- Embeddings decay, and are sent, whatever `guidance` leaves out. Incomplete batches are kept.
- The valve ends with a ReLU, so features below 0 lose their sign, as in the code.
"""

from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.engine.fit import Loss, Step
from fedbench.engine.losses import task_loss_through
from fedbench.methods.base import About, Method, ModelFacts
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module.additions import Addition, add_before_head, draw_linear
from fedbench.module.layout import Layout
from fedbench.module.masks import Entries, Masks
from fedbench.module.weights import Weights

GUIDE = "guide"


class GPFL(Method["GPFL.Options"]):
    """A shared valve turns features into the client's own ones and global ones, which class embeddings guide."""

    about = About(
        "a shared valve splits features into own ones and ones guided by class embeddings",
        "parameter decoupling",
        "Zhang et al., ICCV",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedper": {"method.cov": False, "method.guidance": "none", "method.mu": 0}}

    class Options(Method.Options):
        lam: float = Field(0.01, ge=0, description="weight of the magnitude term")
        mu: float = Field(0.1, ge=0, description="weight decay of embeddings and valve")
        magnitude_form: Literal["batch", "sample"] = Field(
            "batch", description="magnitude: norm over a whole batch, or the mean of its images' norms"
        )
        guidance: Literal["both", "angle", "magnitude", "none"] = Field("both", description="terms of the guidance")
        cov: bool = Field(True, description="false: no valve, so that both features are the body's outputs")

    needs = frozenset({"head", "classes"})

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        classes, features = layout.linear_head()[0].shape
        add_before_head(module, layout, GUIDE, Guide(classes, features, options.cov, facts.seed))

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("losses of its own")
        return ()

    def private(self, layout: Layout) -> Masks:
        return layout.masks("head")

    def frozen(self, layout: Layout) -> Masks:
        """The conditional input, which follows from the received embeddings."""
        return layout.under([f"{GUIDE}.condition"])

    @cached_property
    def embeddings(self) -> Entries:
        return Entries(self.context.layout.under([f"{GUIDE}.embeddings"]).params)

    @cached_property
    def condition(self) -> Entries:
        return Entries(self.frozen(self.context.layout).buffers)

    def rows(self, model: Weights) -> Tensor:
        """The embeddings `[C, d]` of a model."""
        return self.embeddings.take(model.params).view(-1, self.condition.size)

    def receive(self, client: Client) -> Weights:
        return self.with_condition(client, super().receive(client))

    def idle_model(self, client: Client) -> Weights:
        return self.with_condition(client, super().idle_model(client))

    def with_condition(self, client: Client, model: Weights) -> Weights:
        """The model with the client's mixture of its embeddings as conditional input."""
        rows = self.rows(model)
        counts = client.train.labels.bincount(minlength=len(rows)).to(rows)
        return model.replace(buffers=self.condition.put(model.buffers, counts / counts.sum() @ rows))

    def train(self, client: Client, received: Weights) -> Upload:
        options, anchors, loss = self.options, self.rows(received), None
        if options.guidance != "none":
            function = partial(guided_loss, guidance=options.guidance, form=options.magnitude_form)
            loss = Loss(function, anchors=anchors, common=anchors.mean(0), lam=options.lam)
        train, guide = self.context.train, self.context.layout.under([GUIDE]).params
        more = options.mu - (0.0 if train.optimizer == "module" else train.weight_decay)
        step = Step(add_decay, more=more * guide.to(received.params)) if more else None
        return self.upload(client, client.fit(received, client.train, loss=loss, step=step))


class Guide(Addition):
    """Class embeddings `[C, d]`, and the valve: two branches of a conditional input `[d]`."""

    condition: Tensor

    def __init__(self, classes: int, features: int, valve: bool, seed: int) -> None:
        super().__init__()
        stream = torch.Generator().manual_seed(seed)
        self.embeddings = nn.Parameter(torch.randn(classes, features, generator=stream))
        self.register_buffer("condition", torch.zeros(features))
        if valve:
            self.gamma, self.beta = branch(features, stream), branch(features, stream)

    def forward(self, features: Tensor) -> Tensor:
        return self.valve(features, self.condition)

    def valve(self, features: Tensor, condition: Tensor) -> Tensor:
        """Features `[b, d]`, scaled and shifted by a conditional input `[d]`."""
        if not hasattr(self, "gamma"):
            return features
        return open_valve(features, self.gamma(condition) + 1, self.beta(condition))


def branch(features: int, stream: torch.Generator) -> nn.Sequential:
    layers = nn.Sequential(linear := nn.Linear(features, features), nn.ReLU(), nn.LayerNorm(features))
    draw_linear(linear, stream)
    return layers


def open_valve(features: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return (scale * features + shift).relu()


def guided_loss(net: LightningModule, batch: Any, s: Any, guidance: str, form: str) -> Tensor:
    """The client's own loss plus the terms of the guidance on the globally conditioned features."""
    loss, features, _ = task_loss_through(net, batch, GUIDE)
    guide: Any = net.get_submodule(GUIDE)
    with torch.autocast(loss.device.type, enabled=False):
        guided = guide.valve(features.flatten(1).to(s.anchors), s.common)
        if guidance in ("both", "angle"):
            loss = loss + angle_loss(guided, guide.embeddings, batch[1])
        if guidance in ("both", "magnitude"):
            loss = loss + s.lam * magnitude(guided - s.anchors[batch[1]], form)
        return loss


def angle_loss(features: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the cosines of features `[b, d]` to the embeddings `[C, d]`."""
    cosines = F.normalize(features, dim=1) @ F.normalize(embeddings, dim=1).T
    return F.cross_entropy(cosines, labels)


def magnitude(apart: Tensor, form: str) -> Tensor:
    """The norm of all entries of offsets `[b, d]`, or the mean of the rows' norms; no gradient at 0."""
    squares = apart.square().sum() if form == "batch" else apart.square().sum(1)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt(), 0).mean()


def add_decay(g: Tensor, w: Tensor, s: Any) -> None:
    """Adds weight decay of its own to each entry; `[N]`, or rows of clients `[K, N]`."""
    g.addcmul_(w, s.more)
