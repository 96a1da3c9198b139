"""FedBABU: federated averaging with body aggregation and body update (Oh, Kim, Yun; ICLR 2022).

Private: the fine-tuned copy, which is evaluated and dropped. Up and down: the body with its running statistics. The
head of the start model is the same everywhere and never moves in the federation; evaluation fine-tunes a copy of body
and head.

Where we decide:
- The head is left out of every step, so that neither decay nor momentum moves it; a public library sets its gradient
  to zero, which lets both move it. The rest of the model trains as ever, in training mode.
- Bodies are weighted by images (the paper's algorithm); the authors' code takes the plain mean.
- The fine-tuned model is that of the evaluated round; the code takes that of the best round on test data. All of it is
  fine-tuned, for five epochs at the round's rate, as the paper recommends.
- The variants that train the head or the whole model in the federation are not here; the latter is fedavg-ft.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from fedbench.errors import ConfigError
from fedbench.methods.base import About
from fedbench.methods.fedavg_ft import FedAvgFT
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights


class FedBABU(FedAvgFT):
    """Only the body is trained and averaged, under a head that stays as it was drawn."""

    about = About(
        "the body alone is trained, under a fixed head; then a throwaway fine-tuning",
        "parameter decoupling",
        "Oh et al., ICLR",
        2022,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedrep:head_epochs=0,body_epochs=1,weighting=samples": {
            "method.ft_epochs": 0,
            "model": "mlp",
            "train.batch_size": "full",
            "train.shuffle": False,
        },
    }

    class Options(FedAvgFT.Options):
        ft_epochs: int | None = Field(5, ge=0, description="epochs of fine-tuning; none: as many as a local fit")
        ft_scope: Literal["all", "head", "body"] = Field("all", description="what is fine-tuned")  # type: ignore[assignment]

    train_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 0.0}
    needs = frozenset({"head"})

    def frozen(self, layout: Layout) -> Masks:
        return layout.masks("head") & ~layout.masks("tied")

    def start(self, initial: Weights) -> ServerState:
        head = initial.params[self.frozen(self.context.layout).params.to(initial.params.device)]
        if not head.any():
            raise ConfigError(
                "the model's head starts with zeros, so a body under it never gets a gradient: draw the head's weight"
            )
        return super().start(initial)
