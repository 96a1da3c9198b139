"""Fed-RoD: federated robust decoupling (Chen, Chao; ICLR 2022).

Private: a second head, which is added to the generic one, and the class counts. Up and down: body, generic head and
running statistics, as in FedAvg. Body and generic head descend the balanced softmax loss, the personal head the usual
loss of the sum of both heads' outputs, from the same forward pass and without a gradient to body and generic head.

Where we decide:
- The personal head starts at zero, so that a client that never trained predicts as the global model does; public code
  copies the generic head (`personal_init=copy`), which doubles the class scores.
- Both are trained at once (the paper's figure); `personal_training=after` runs the personal head's epochs afterwards.
- Absent classes are left out of the balanced softmax. Public code takes 1e-12 for their count.
- The hypernetwork for personal heads, Meta-BSM and the regularisers of the generic loss are not here.
- Public versions train the body by the personal loss too, or evaluate the personal head alone.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.engine.fit import Loss, Move, Part, Step
from fedbench.engine.losses import calls_of, outputs_of, task_loss_through
from fedbench.methods.base import About, Method, ModelFacts, Point
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.methods.server import ServerState
from fedbench.module.additions import add_beside
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights

PERSONAL = "personal_head"


class FedRoD(Method["FedRoD.Options"]):
    """The sum of a generic head, trained with a balanced loss, and a private one is the personal model's head."""

    about = About(
        "a generic head with a balanced loss, and a private head on top of it",
        "parameter decoupling",
        "Chen and Chao, ICLR",
        2022,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg": {"method.gamma": 0, "method.personal_training": "after", "point": "global"}
    }

    class Options(Method.Options):
        gamma: float = Field(1.0, ge=0, description="exponent of the class counts in the balanced softmax, eq. 6")
        personal_init: Literal["zero", "copy"] = Field("zero", description="first personal head: zeros, or the generic")
        personal_training: Literal["joint", "after"] = Field(
            "joint", description="the personal head in every step, or by itself after the others"
        )
        personal_lr: float | None = Field(
            None,
            gt=0,
            description="learning rate of the personal head; none: the run's",
            json_schema_extra={"rate": "run"},
        )

    needs = frozenset({"head", "classes"})

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        head = deepcopy(module.get_submodule(layout.head_name or ""))
        if options.personal_init == "zero":
            for parameter in head.parameters():
                nn.init.zeros_(parameter)
        add_beside(module, PERSONAL, head)

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return super().steps(options, train, samples, public) * (2 if options.personal_training == "after" else 1)

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("losses of its own")
        self.context.layout.linear_head()
        return ()

    def private(self, layout: Layout) -> Masks:
        return layout.under([PERSONAL])

    def train(self, client: Client, received: Weights) -> Upload:
        private, rate = self.private_params.mask, self.options.personal_lr
        needs = {"head": self.context.layout.head_name, "prior": self.prior(client)}
        if self.options.personal_training == "joint":
            step = Step(parts=[Part(private, lr=rate)]) if rate else None
            return self.upload(client, client.fit(received, client.train, loss=Loss(both_losses, **needs), step=step))
        model = client.fit(received, client.train, move=Move(~private), loss=Loss(generic_loss, **needs))
        move, loss = Move(private, frozen="norm_eval"), Loss(personal_loss, **needs)
        return self.upload(
            client, client.fit(model, client.train, "personal", move=move, loss=loss, step=Step(lr=rate))
        )

    def prior(self, client: Client) -> Tensor | None:
        """gamma log N of every class `[C]`, -inf for absent ones; None with gamma = 0."""
        if not self.options.gamma:
            return None
        counts = client.train.labels.bincount(minlength=self.context.classes)
        return self.options.gamma * counts.to(client.initial.params).log()

    def personal(self, client: Client, model: Weights, point: Point) -> Weights:
        """The model whose head is the sum of both heads."""
        params, head = model.params.clone(), self.context.layout.mask("head")
        params[head] += params[self.private_params.mask]
        return model.replace(params=params)

    def global_model(self, server: ServerState, initial: Weights) -> Weights | None:
        """Body and generic head, whose personal head is unused."""
        return self.whole_model(server, initial) if self.shared_buffers.all else None


def both_losses(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The generic loss of body and generic head plus the personal head's own, in one forward pass."""
    loss, features, scores = generic_pass(net, batch, s)
    return loss + loss_of_sum(net, features, scores, batch[1])


def generic_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    return generic_pass(net, batch, s)[0]


def personal_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    with calls_of(net.get_submodule(s.head)) as calls:
        outputs_of(net(batch[0]))
    return loss_of_sum(net, *calls[0], batch[1])


def generic_pass(net: LightningModule, batch: Any, s: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The balanced softmax loss of a batch, or the module's own with gamma = 0, and the head's inputs and outputs."""
    if s.prior is None:
        return task_loss_through(net, batch, s.head)
    with calls_of(net.get_submodule(s.head)) as calls:
        outputs_of(net(batch[0]))
    features, scores = calls[0]
    return balanced_softmax(scores, batch[1], s.prior), features, scores


def balanced_softmax(scores: Tensor, labels: Tensor, prior: Tensor) -> Tensor:
    """Mean cross-entropy of class scores `[b, C]` plus the prior `[C]` (eqs. 5 and 6)."""
    return F.cross_entropy(scores + prior, labels)


def loss_of_sum(net: LightningModule, features: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the sum of both heads' outputs, with a gradient to the personal head only."""
    personal_scores: Tensor = net.get_submodule(PERSONAL)(features.detach())
    return F.cross_entropy(scores.detach() + personal_scores, labels)
