"""FML, federated mutual learning (Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu; preprint 2020).

Private: the client's own model, of any architecture. Up and down: the meme model, which is the same at all clients.
In every step both learn from the batch and from each other's predictions: the own model minimises alpha times its loss
plus (1 - alpha) times KL(meme || own), the meme model beta times its loss plus (1 - beta) times KL(own || meme).

Where we decide:
- This is the method as the paper's abstract and public code show it; its equations were not at hand.
- Both step at the same time, with one optimiser: the predictions from which a model learns are those before the step,
  and no gradient flows into them. The norm of `train.clip_norm` is that of both gradients together.
- KL is summed over classes and averaged over images. Popular code averages over classes too, by the default of
  PyTorch, which divides the term by their number.
- alpha and beta are 0.5 unless set. With both 1 the own models are those of local and the meme model that of fedavg.
- The own model is what is evaluated. It has the loss of its training_step, the meme model that of the task.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.engine.fit import Loss
from fedbench.engine.losses import outputs_of, task_loss_through
from fedbench.methods.base import About, Method, ModelFacts
from fedbench.methods.client import Client
from fedbench.methods.messages import Upload
from fedbench.module.additions import add_beside
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights
from fedbench.tasks import Task

MEME = "meme"


class FML(Method["FML.Options"]):
    """An own model and a shared one that teach each other."""

    about = About(
        "an own model of any architecture and a shared one teach each other",
        "distillation",
        "Shen et al., preprint",
        2020,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"method.alpha": 1, "model": "mlp"}}
    needs = frozenset({"classes"})
    after_fit = "after_agg"

    class Options(Method.Options):
        alpha: float = Field(0.5, ge=0, le=1, description="weight of the own model's loss; the rest is its distance")
        beta: float = Field(0.5, ge=0, le=1, description="weight of the meme model's loss; the rest is its distance")
        shared_model: str | None = Field(
            None, description="the meme model, by name as in model.name; none: the run's first model"
        )

    @classmethod
    def adapt_model(cls, module: nn.Module, layout: Layout, options: Options, facts: ModelFacts) -> None:
        add_beside(module, MEME, facts.another(options.shared_model))

    def check(self) -> Iterable[str]:
        self.refuse_private_steps("predictions of another model")
        return ()

    def private(self, layout: Layout) -> Masks:
        return ~layout.under([MEME])

    def common_shapes(self) -> list[tuple[int, ...]]:
        return self.shared_shapes()

    def train(self, client: Client, received: Weights) -> Upload:
        function = partial(mutual_loss, task=client.learner.task)
        loss = Loss(function, alpha=self.options.alpha, beta=self.options.beta)
        return self.upload(client, client.fit(received, client.train, loss=loss))


def mutual_loss(net: LightningModule, batch: Any, s: Any, task: Task) -> Tensor:
    """The sum of both models' losses, in which neither's gradient flows into the other."""
    loss, _, output = task_loss_through(net, batch, "")
    own, meme = outputs_of(output), outputs_of(net.get_submodule(MEME)(batch[0]))
    with torch.autocast(loss.device.type, enabled=False):
        own, meme = own.to(loss), meme.to(loss)
        mine = s.alpha * loss + (1 - s.alpha) * divergence(meme.detach(), own)
        return mine + s.beta * task.loss(meme, batch[1]) + (1 - s.beta) * divergence(own.detach(), meme)


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of the classes by logits `[b, C]`, averaged over images."""
    return F.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True)
