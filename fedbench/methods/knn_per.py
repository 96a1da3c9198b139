"""kNN-Per: personalisation by local memorisation (Marfoq, Neglia, Kameni, Vidal; ICML 2022).

Training and traffic are FedAvg's. Private: a memory of the features and labels of the client's own training images,
made anew for every model that is evaluated. A prediction mixes the class probabilities of the model with those of the
nearest images in the memory.

Where we decide:
- The kernel has squared distances divided by the number of features, as the authors' code computes it; the paper writes
  a distance (`distance=euclidean`).
- Probabilities are mixed (paper); the authors' scripts add the neighbours' shares to class scores (`mixing=logits`).
- lam is 0.5 for all; the paper chooses it per client on validation data (`lam=auto`), which are then no part of
  training, weights and memory. The authors' evaluation reports every lam on test data.
- Every evaluated model gets its memory; the paper's is that of the last global model.
- Search is exact, in float64, on the head's inputs; ties go to the earlier image.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.aggregation.means import normalise
from fedbench.aggregation.ranks import floored_share
from fedbench.config import TrainConfig
from fedbench.engine.fit import Batches
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, Predictor, held_count
from fedbench.methods.messages import Upload
from fedbench.module import seeds
from fedbench.module.weights import Weights

SMALLEST = 1e-12
"""Probabilities below count as this in a loss."""


class KNNPer(Method["KNNPer.Options"]):
    """The global model's prediction is mixed with that of the nearest own training images."""

    about = About("the global model, mixed with the nearest own samples", "local memory", "Marfoq et al., ICML", 2022)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.lam": 0}}

    class Options(Method.Options):
        k: int = Field(10, ge=1, description="nearest samples that vote")
        lam: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field(
            0.5, description="weight of the neighbours; auto: the best of 0, 0.1, ..., 1 on held-out samples"
        )
        scale: float = Field(1.0, gt=0, description="width of the kernel, times the number of features")
        distance: Literal["squared", "euclidean"] = Field("squared", description="distance in the kernel")
        mixing: Literal["probabilities", "logits"] = Field(
            "probabilities", description="what is mixed: probabilities, or the neighbours' shares with class scores"
        )
        capacity: float = Field(1.0, ge=0, le=1, description="share of the training samples in the memory")
        memory_pick: Literal["random", "head"] = Field("random", description="which: drawn once, or the first ones")
        val_fraction: float = Field(0.2, gt=0, lt=1, description="share of samples held out with lam=auto")
        val_pick: Literal["random", "tail"] = Field("random", description="which: drawn once, or the last ones")

    needs = frozenset({"head", "classes"})

    def check(self) -> Iterable[str]:
        if self.options.lam == "auto" and self.context.private_steps:
            raise ConfigError(
                f"privacy.level = sample: {self.context.method} with method.lam = auto fits on a part of its samples, "
                "so that each is in a batch more often than epsilon counts; give method.lam a number, or set "
                "privacy.level = client"
            )
        return ()

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return super().steps(options, train, kept_count(options, samples), public)

    @mean_suffices
    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        if self.options.weighting == "uniform" or len(uploads) == 1:
            return [1 / len(uploads)] * len(uploads)
        return normalise([kept_count(self.options, self.context.sizes[u.client]) for u in uploads])

    def train(self, client: Client, received: Weights) -> Upload:
        return self.upload(client, client.fit(received, self.parts(client)[0]))

    def parts(self, client: Client) -> tuple[Any, Any]:
        """The images to train on and to remember, and those held out."""
        if self.options.lam != "auto":
            return client.train, None
        return client.split(self.options.val_fraction, "validation" if self.options.val_pick == "random" else None)

    def memory(self, client: Client, kept: Any) -> Any:
        """The remembered images, in stored order."""
        count = floored_share(self.options.capacity, len(kept))
        places = torch.arange(len(kept))
        if self.options.memory_pick == "random":
            places = torch.randperm(len(kept), generator=seeds.generator(client.seed, client.id, "memory"))
        return kept if count == len(kept) else kept.part(places[:count].sort().values)

    def personal(self, client: Client, model: Weights, point: Point) -> Weights | Predictor:
        kept, held = self.parts(client)
        memory = self.memory(client, kept)
        if not len(memory) or self.options.lam == 0:
            return model
        keys = self.features(client, model, memory)
        votes = partial(self.votes, client, model, keys, memory.labels.to(keys.device))
        lam = self.options.lam
        if lam == "auto":
            lam = self.best_lam(client.learner.logits(model, held), votes(held), held.labels) if len(held) else 0.0

        def scores(data: Batches) -> Tensor:
            return mixed(votes(data), client.learner.logits(model, data), lam, self.options.mixing)

        return Predictor(scores)

    def features(self, client: Client, model: Weights, data: Any) -> Tensor:
        return client.learner.features(model, data).flatten(1).to(torch.float64)

    def votes(self, client: Client, model: Weights, keys: Tensor, labels: Tensor, data: Any) -> Tensor:
        """Class shares `[n, C]` of the nearest images in the memory."""
        options, queries = self.options, self.features(client, model, data)
        square = options.distance == "squared"
        return neighbours(queries, keys, labels, self.context.classes, options.k, options.scale, square)

    def best_lam(self, logits: Tensor, votes: Tensor, labels: Tensor) -> float:
        """The smallest lam of 0, 0.1, ..., 1 with the most correct predictions."""
        tried = [step / 10 for step in range(11)]
        hits = [int((mixed(votes, logits, lam, self.options.mixing).argmax(1) == labels).sum()) for lam in tried]
        return tried[hits.index(max(hits))]


def kept_count(options: KNNPer.Options, samples: int) -> int:
    """Training images that are not held out."""
    return samples - held_count(samples, options.val_fraction) if options.lam == "auto" else samples


def neighbours(
    queries: Tensor, keys: Tensor, labels: Tensor, classes: int, k: int, scale: float, square: bool
) -> Tensor:
    """p_knn `[n, C]`: shares of the k nearest keys `[m, d]` of queries `[n, d]`, weighted by exp(-distance)."""
    far = torch.cdist(queries, keys, compute_mode="donot_use_mm_for_euclid_dist")  # from differences
    near, places = (far.square() if square else far).sort(dim=1, stable=True)
    near, places = near[:, :k], places[:, :k]
    weights = torch.exp((near[:, :1] - near) / (keys.shape[1] * scale))
    shares = (F.one_hot(labels[places], classes) * weights[:, :, None]).sum(1)
    return shares / weights.sum(1, keepdim=True)


def mixed(votes: Tensor, logits: Tensor, lam: float, mixing: str) -> Tensor:
    """Class scores `[n, C]`, float64, of the mixture of votes `[n, C]` and a model's class scores."""
    logits = logits.to(torch.float64)
    if mixing == "logits":
        return lam * votes + (1 - lam) * logits
    return (lam * votes + (1 - lam) * logits.softmax(1)).clamp(min=SMALLEST).log()
