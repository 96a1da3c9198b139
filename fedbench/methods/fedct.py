"""FedCT, federated co-training ("Little is Enough", Abourayya, Kleesiek, Rao, Ayday, Rao, Webb, Kamp, AAAI 2025).

Private: the whole model. Up and down: a class index per public image (with flipped bits a row of C bits up); every
client of the round has one vote, whatever its number of images. Clients train on their own images and the public ones
with the voted labels.

Where we decide:
- One pool of private and public images is the paper's text (`combine=union`): every image weighs the same, an epoch has
  ceil((n_i + |U|) / B) steps. The authors' code draws a public batch for every private one (`paired`) and has a
  personalised variant with two losses (`sum`), the form that FedMosaic grew from.
- There are no labels before the first vote, at the end of round `first_vote`: local training until then. Models that
  cannot distinguish classes yet vote for one and learn it: the first vote is at the end of the round by which clients
  have made 80 gradient steps each, on average. `first_vote=1` is literal.
- Their code predicts in train mode, and reduces noisy rows to one label: here evaluation mode, and rows are votes.
  It keeps one optimiser for the whole run: that is `train.keep_optimizer`.
- Budgets are for the sensitivity given as an option: the paper's bound by the stability of training needs constants
  that are unknown for a network.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.config import TrainConfig
from fedbench.engine.fit import Batches, Loss, PairedBatches
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.methods.base import About
from fedbench.methods.client import Client
from fedbench.methods.cotraining import CoTraining, PublicLabels, public_batch, weighted_sum
from fedbench.module.seeds import Key
from fedbench.module.weights import Weights


class FedCT(CoTraining["FedCT.Options"]):
    """Training on private images and on public ones with the clients' voted labels."""

    about = About("clients vote on labels of public samples", "co-training", "Abourayya et al., AAAI", 2025)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"method.combine": "sum", "method.public_weight": 0}}
    needs = frozenset({"public", "classes"})
    also_sends = "their votes"

    class Options(CoTraining.Options):
        combine: Literal["union", "paired", "sum"] = Field(
            "union",
            description="private and public samples: one pool (paper), a batch of each joined (code), or two losses",
        )
        public_weight: float = Field(1.0, ge=0, description="weight of the public loss with combine=sum")

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return super().steps(options, train, samples + (public if options.combine == "union" else 0), public)

    def check(self) -> Iterable[str]:
        lines, options = super().check(), self.options
        if options.combine != "sum" and options.public_weight != 1:
            raise ConfigError(
                f"method.public_weight = {options.public_weight}: combine={options.combine} has one loss for all "
                "samples, set method.combine=sum"
            )
        if options.combine == "union" and options.public_batch_size is not None:
            raise ConfigError(
                f"method.public_batch_size = {options.public_batch_size}: combine=union draws from one pool, set "
                "method.combine to paired or sum"
            )
        return lines

    def learn(self, client: Client, received: Weights, public: PublicLabels | None) -> tuple[Weights, dict[str, float]]:
        options = self.options
        data: Batches = client.train
        loss = None
        if public is not None and options.combine == "union":
            data = Union(client.train, public)
        elif public is not None and options.public_weight:
            data = PairedBatches(client.train, public, public_batch(options.public_batch_size, self.context))
            loss = Loss(pooled_loss) if options.combine == "paired" else Loss(weighted_sum, lam=options.public_weight)
        return client.fit(received, data, loss=loss), {}


@dataclass
class Union:
    """The images of one client, then the public ones; a batch keeps the requested order."""

    own: Batches
    public: Batches

    @property
    def key(self) -> Key:
        return self.own.key

    def __len__(self) -> int:
        return len(self.own) + len(self.public)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        mine = index < len(self.own)
        places = torch.cat([mine.nonzero(), (~mine).nonzero()]).flatten()
        x, y = joined_batch(self.own.batch(index[mine]), self.public.batch(index[~mine] - len(self.own)))
        return torch.empty_like(x).index_copy_(0, places, x), torch.empty_like(y).index_copy_(0, places, y)


def joined_batch(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two batches as one."""
    return torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]])


def pooled_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The module's own loss of a private and a public batch as one, private first."""
    return task_loss(net, joined_batch(*batch))
