"""FedCT, federated co-training ("Little is Enough", Abourayya, Kleesiek, Rao, Ayday, Rao, Webb, Kamp, AAAI 2025).

Private: the whole model. Up and down: a class index per public image (with flipped bits a row of C bits up); every
client of the round has one vote, whatever its number of images. Clients train on their own images and the public ones
with the voted labels.

Where we decide:
- One pool of private and public images is the paper's text (`combine=union`): every image weighs the same, an epoch has
  ceil((n_i + |U|) / B) steps. The authors' code draws a public batch for every private one (`paired`) and has a
  personalised variant with two losses (`sum`), the form that FedMosaic grew from.
- Round 1 has no labels yet and is local training.
- Their code predicts in train mode, and cuts noisy rows back to one label: here evaluation mode, and rows are votes.
  It keeps one optimiser for the whole run: that is `train.keep_optimizer`.
- Budgets are for the sensitivity given as an option: the paper's bound by the stability of training needs constants
  that nobody knows of a network.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.learner.learner import Batches
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client
from fedbench.methods.cotraining import CoTraining, Relabelled, weighted_sum


class FedCT(CoTraining):
    """Training on private images and on public ones with the labels that most clients voted for."""

    class Options(CoTraining.Options):
        combine: Literal["union", "paired", "sum"] = Field(
            "union",
            description="private and public images: one pool (paper), a batch of each joined (code), or two losses",
        )
        public_weight: float = Field(1.0, ge=0, description="weight of the public loss with combine=sum")

    def check(self) -> None:
        super().check()
        options = self.options
        if options.combine != "sum" and options.public_weight != 1:
            raise ConfigError(
                f"method.public_weight = {options.public_weight}: combine={options.combine} has one loss for all "
                "images, set method.combine=sum"
            )
        if options.combine == "union" and options.public_batch_size is not None:
            raise ConfigError(
                f"method.public_batch_size = {options.public_batch_size}: combine=union draws from one pool, set "
                "method.combine to paired or sum"
            )

    def train(self, client: Client, received: Weights, labels: Tensor | None) -> tuple[Weights, dict[str, float]]:
        options, data = self.options, client.train
        more: dict[str, Any] = {}
        if labels is not None:
            public = Relabelled(client.public, labels)
            if options.combine == "union":
                data = Union(client.train, public)
            elif options.combine == "paired":
                more = {"loss": pooled_loss, "second": (public, self.public_batch(), "public")}
            elif options.public_weight:
                weight = torch.tensor(options.public_weight, dtype=client.learner.dtype, device=client.learner.device)
                more = {
                    "loss": weighted_sum,
                    "second": (public, self.public_batch(), "public"),
                    "state": {"lam": weight},
                }
        return client.learner.fit(received, data, memory=client.memory("fit"), **more), {}


@dataclass
class Union:
    """The images of one client and, after them, the public ones; a batch has them in the order asked for."""

    own: Batches
    public: Batches

    @property
    def key(self) -> tuple[int | str, ...]:
        return self.own.key

    def __len__(self) -> int:
        return len(self.own) + len(self.public)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        mine = index < len(self.own)
        places = torch.cat([mine.nonzero(), (~mine).nonzero()]).flatten()
        x, y = joined(self.own.batch(index[mine]), self.public.batch(index[~mine] - len(self.own)))
        return torch.empty_like(x).index_copy_(0, places, x), torch.empty_like(y).index_copy_(0, places, y)


def joined(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two batches as one."""
    return torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]])


def pooled_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The module's own loss of a private and a public batch as one, private first."""
    return task_loss(net, joined(*batch))
