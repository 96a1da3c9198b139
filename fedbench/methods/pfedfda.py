"""pFedFDA: personalized federated learning via feature distribution adaptation (McLaughlin, Su; NeurIPS 2024).

Private: the prior of labels and the last weights of adaptation; the head is never sent, because it is computed: linear
discriminant analysis of Gaussian features. Up: body, adapted class means and covariance (its upper triangle), number of
images; down: body, global means and covariance. In training the head is that of the global statistics, and frozen.

Where we decide:
- `cov_offset` on every entry and `cov_ridge` on the diagonal are the authors' code; the paper's notation suggests a
  small ridge alone. The code's nearest positive definite matrix is left out: with a ridge the matrix is one.
- The weights are found by scipy's L-BFGS-B in its box from 0.5; the code clips inside another L-BFGS and shuffles the
  folds, so compare objectives, not weights. The code's round of full participation at the end is left out.
- after_agg adapts again, on features of the new body; nothing is kept.
- FL-bench's port sets no head before training and computes no statistics in it: its body is trained as FedAvg's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.aggregator import mean_suffices
from fedbench.aggregation.cross_validation import Betas, LabelledRows, best_betas, fold_held_out, make_folds
from fedbench.aggregation.gaussians import (
    Gaussians,
    Moments,
    discriminant,
    label_prior,
    mixed_gaussians,
    one_thread,
    packed_triangle,
    shrink,
    statistics,
    unpacked_triangle,
)
from fedbench.aggregation.means import weighted_mean
from fedbench.engine.fit import Loss, Move
from fedbench.engine.losses import task_loss_through
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point, uses_aggregator
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Message, Upload, encoded
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights

Share = Annotated[float, Field(ge=0, le=1)]


class PFedFDA(Method["PFedFDA.Options", "PFedFDA.State", "PFedFDA.Server"]):
    """The head is computed from feature means and covariance, local and global, weighted by each client."""

    about = About(
        "heads are computed from means and covariance of features, adapted to the client",
        "parameter decoupling",
        "McLaughlin and Su, NeurIPS",
        2024,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "pfedfda:beta=1": {"method.local_beta": True},
        "pfedfda:beta=0.3": [{"method.beta": [0.3, 0.3]}, {"method.beta": 0.3, "method.single_beta": True}],
    }
    needs = frozenset({"head", "classes"})
    also_sends = "statistics of their features"

    class Options(Method.Options):
        single_beta: bool = Field(False, description="one weight for means and covariance (ablation)")
        local_beta: bool = Field(False, description="local statistics alone, weights of 1 (ablation)")
        beta: Share | Annotated[list[Share], Field(min_length=2, max_length=2)] | None = Field(
            None, description="fixed weight of the local statistics, or a pair for means and covariance; none: solved"
        )
        num_folds: int = Field(2, ge=2, description="folds that the weights are validated on")
        eps: float = Field(1e-4, gt=0, lt=1, description="smoothing of the prior, shrinkage of the covariance")
        cov_ridge: float = Field(1.0, ge=0, description="added to the diagonal of a local covariance")
        cov_offset: float = Field(1e-4, ge=0, description="added to every entry of a local covariance")
        features_from: Literal["training", "final_pass"] = Field(
            "training", description="features of all batches as they were trained, or of a pass after training"
        )
        beta_max_iter: int = Field(10, ge=1, description="iterations of the solver of the weights")
        beta_gtol: float = Field(1e-3, gt=0, description="projected gradient at which the solver stops")

    @dataclass
    class State(PrivateState):
        """betas: the last weights of adaptation."""

        betas: Betas = (0.5, 0.5)

    @dataclass
    class Server(ServerState):
        """Global statistics. means: `[C * H]`; covariance: its upper triangle `[H (H + 1) / 2]`."""

        means: Tensor = UNSET
        covariance: Tensor = UNSET

    def check(self) -> tuple[str, ...]:
        options = self.options
        if options.local_beta and options.beta is not None:
            raise ConfigError(f"method.beta = {options.beta}: method.local_beta = true means 1, give one of the two")
        if options.single_beta and isinstance(options.beta, list):
            raise ConfigError(f"method.beta = {options.beta}: method.single_beta = true takes one number, not a pair")
        if options.features_from == "training" and self.context.optimizer_reevaluates:
            raise ConfigError(
                "method pfedfda records the features of each batch, but LBFGS of the model's configure_optimizers "
                "evaluates a batch several times: choose another optimiser, such as --train.optimizer sgd"
            )
        if self.context.layout.linear_head()[1] is None:
            raise ConfigError("method.name = pfedfda: the model's classifier needs a bias, for the prior of labels")
        return ()

    def private(self, layout: Layout) -> Masks:
        return Masks(layout.mask("head"), layout.nothing().buffers)

    def receive(self, client: Client[State]) -> Weights:
        return self.with_head_of(self.global_statistics(client), client, super().receive(client))

    def train(self, client: Client[State], received: Weights) -> Upload:
        body, features, labels = self.train_body(client, received)
        adapted, betas = self.adapted_statistics(client, features, labels)
        upload = self.upload(
            client,
            self.with_head_of(adapted, client, body),
            traces={"beta_means": betas[0], "beta_covariance": betas[1]},
            means=adapted.means.flatten().to(body.params),
            covariance=packed_triangle(adapted.covariance).to(body.params),
            images=encoded(torch.tensor(client.samples), bits=32),
        )
        client.state.params = None  # the head, which is computed
        client.state.betas = betas
        return upload

    def train_body(self, client: Client[State], received: Weights) -> tuple[Weights, Tensor, Tensor]:
        """The trained body under the received head, and its features `[rows, H]` with labels."""
        layout, data, size = self.context.layout, client.train, self.context.train.batch_size
        body, loss = Move(~layout.mask("head")), None
        if self.options.features_from == "training":
            batch = len(data) if size == "full" else min(int(size), len(data))
            (weight, _), steps = layout.linear_head(), client.amount().steps_on(len(data), self.context.train)
            rows = steps * batch
            loss = recording_loss(layout.head_name, rows, batch, weight.shape[1], received.params)
        trained = client.fit(received, data, move=body, loss=loss)
        if loss is not None and len(recorded_features(loss)[0]):
            return trained, *recorded_features(loss)
        return trained, client.learner.features(trained, data), data.labels

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights:
        if point == "after_fit":
            return model
        adapted, _ = self.adapted_statistics(client, client.learner.features(model, client.train), client.train.labels)
        return self.with_head_of(adapted, client, model)

    def adapted_statistics(self, client: Client[State], features: Tensor, labels: Tensor) -> tuple[Gaussians, Betas]:
        """Local statistics mixed with the global ones, and the weights of the local means and covariance."""
        rows = features.flatten(1).cpu(), labels.cpu()
        return adapt_statistics(
            rows, self.global_statistics(client), self.prior(client), client.state.betas, self.options
        )

    def prior(self, client: Client[State]) -> Tensor:
        return label_prior(client.train.labels.cpu(), self.context.classes, self.options.eps)

    def global_statistics(self, client: Client[State]) -> Gaussians:
        """The global statistics that the client received."""
        shape, message = self.context.layout.linear_head()[0].shape, client.message
        means, upper = (part.cpu().to(torch.float64) for part in (message.means, message.covariance))
        return Gaussians(means.view(shape), unpacked_triangle(upper, shape[1]))

    def with_head_of(self, gaussians: Gaussians, client: Client[State], weights: Weights) -> Weights:
        """The model with the head of these statistics, for the client's prior of labels."""
        weight, bias = self.context.layout.linear_head()
        assert bias is not None
        slopes, offsets = discriminant(gaussians, self.options.eps)
        params = weights.params.clone()
        params[weight.start : weight.stop] = slopes.flatten()
        params[bias.start : bias.stop] = offsets + self.prior(client).log()
        return weights.replace(params=params)

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        (weight, _), dtype = self.context.layout.linear_head(), initial.params.dtype
        draw = torch.Generator().manual_seed(self.context.seed)
        server.means = torch.rand(weight.shape, dtype=dtype, generator=draw).flatten()
        server.covariance = packed_triangle(torch.eye(weight.shape[1], dtype=dtype))
        return server

    def send(self, server: Server, client: int) -> Message:
        return super().send(server, client).add(means=server.means, covariance=server.covariance)

    @uses_aggregator
    @mean_suffices
    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        weights = self.weights(uploads)
        server.means = weighted_mean([u.means for u in uploads], weights)
        server.covariance = weighted_mean([u.covariance for u in uploads], weights)


def recording_loss(head: str | None, rows: int, batch: int, width: int, like: Tensor) -> Loss:
    """The client's own loss, which records the inputs of `head`.

    rows, batch, width: most samples of a training and of a batch, and features of each; like: a tensor of the
    parameters' type.
    """
    labels = torch.empty(rows, dtype=torch.int64, device=like.device)
    following = torch.arange(batch, device=like.device)  # the rows of the next batch
    return Loss(recorded_loss, head=head, features=like.new_empty(rows, width), labels=labels, rows=following)


def recorded_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """Appends the batch's features and labels to those of earlier batches."""
    loss, features, _ = task_loss_through(net, batch, s.head)
    rows = s.rows[: len(features)]
    s.features.index_copy_(0, rows, features.detach().flatten(1).to(s.features.dtype))
    s.labels.index_copy_(0, rows, batch[1])
    s.rows += len(features)
    return loss


def recorded_features(loss: Loss) -> tuple[Tensor, Tensor]:
    """Features `[n, d]` and labels `[n]` recorded by a `recording_loss` loss, in training order."""
    rows = int(loss.needs["rows"][0])
    return loss.needs["features"][:rows], loss.needs["labels"][:rows]


@one_thread
def adapt_statistics(
    rows: LabelledRows, common: Gaussians, prior: Tensor, last: Betas, options: PFedFDA.Options
) -> tuple[Gaussians, Betas]:
    """Statistics of rows mixed with the global ones, and the weights of both.

    prior: of labels `[C]`; last: the weights if the solver fails; options: of pFedFDA.
    """
    classes, eps = len(common.means), options.eps

    def local(moments: Sequence[Moments]) -> Gaussians:
        return statistics(moments, common.means, options.num_folds, options.cov_offset, options.cov_ridge)

    parts = make_folds(*rows, options.num_folds, classes)
    moments = [Moments.of(*part, classes) for part in parts]
    betas = fixed_betas(options)
    if betas is None:
        start = shrink(common, eps)
        folds = fold_held_out(parts[:-1], moments[:-1], local, start, eps)
        limits = options.beta_max_iter, options.beta_gtol
        betas = best_betas(folds, start, prior, options.single_beta, *limits) or last
    return mixed_gaussians(betas, local(moments), common), betas


def fixed_betas(options: PFedFDA.Options) -> Betas | None:
    """The weights that the options fix; None: they are solved for."""
    beta = 1.0 if options.local_beta else options.beta
    if beta is None:
        return None
    means, covariance = beta if isinstance(beta, list) else (beta, beta)
    return means, covariance
