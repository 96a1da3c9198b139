"""pFedFDA: personalized federated learning via feature distribution adaptation (McLaughlin, Su; NeurIPS 2024).

Private: the prior of labels and the last weights of adaptation; the head never travels, because it is computed: linear
discriminant analysis of Gaussian features. Up: body, adapted class means and covariance (its upper triangle), number of
images; down: body, global means and covariance. In training the head is that of the global statistics, and frozen.

Where we decide:
- `cov_offset` on every entry and `cov_ridge` on the diagonal are the authors' code; the paper's notation suggests a
  small ridge alone. The code's nearest positive definite matrix is left out: with a ridge the matrix is one.
- The weights are found by scipy's L-BFGS-B in its box from 0.5; the code clips inside another L-BFGS and shuffles the
  folds, so compare objectives, not weights. The code's round of full participation at the end is left out.
- after_agg adapts anew, on features of the new body; nothing of that is kept.
- FL-bench's port sets no head before training and computes no statistics in it: its body is trained as FedAvg's.

Longer than other method files because of the features of a fit, the solver of the weights and the head in place of
parameters; the head's mathematics is in gaussians.py.
"""

from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from lightning import LightningModule
from pydantic import Field
from scipy.optimize import minimize
from torch import Tensor, nn

from fedbench.aggregators import weighted_mean
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.loop import task_loss_through
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Predictor, Server, Upload
from fedbench.methods.gaussians import (
    Fold,
    Gaussians,
    Moments,
    Rows,
    discriminant,
    label_prior,
    mixed,
    one_thread,
    packed,
    shrunk,
    split,
    statistics,
    unpacked,
    validation,
)

Share = Annotated[float, Field(ge=0, le=1)]


class Common(NamedTuple):
    """Global statistics as they came, unpacked and shrunk, and their `discriminant`."""

    sent: tuple[Tensor, Tensor]
    plain: Gaussians
    start: Gaussians
    head: tuple[Tensor, Tensor]


class PFedFDA(Method):
    """The head is computed from means and covariance of features, local and global ones weighted by each client."""

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

    needs_head = True
    _last: Common | None = None

    def check(self) -> None:
        options = self.options
        if options.local_beta and options.beta is not None:
            raise ConfigError(f"method.beta = {options.beta}: method.local_beta = true means 1, give one of the two")
        if options.single_beta and isinstance(options.beta, list):
            raise ConfigError(f"method.beta = {options.beta}: method.single_beta = true takes one number, not a pair")
        if self.context.layout.linear_head()[1] is None:
            raise ConfigError("method.name = pfedfda: the model's classifier needs a bias, for the prior of labels")

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = super().private(layout)
        return params | layout.mask("head"), buffers

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        received, head = super().receive(client, download), self.common_of(download).head
        return self._with_head(client, received.clone(), head)

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        trained, features, labels = self._train(client, received)
        adapted, betas = self.adapted(client, features, labels, self.common_of(download))
        dtype, device = trained.params.dtype, trained.params.device
        traces = {"beta_means": betas[0], "beta_covariance": betas[1]}
        sent = {"means": adapted.means.flatten(), "covariance": packed(adapted.covariance)}
        sent = {name: part.to(device, dtype) for name, part in sent.items()}
        upload = self.upload(client, self._with_head(client, trained, self._head(adapted)), traces=traces, **sent)
        upload.charge = upload.wire_bytes() + 4  # the number of images
        del client.state["params"]  # the head, which is computed
        client.state["betas"] = betas
        return upload

    def _train(self, client: Client, received: Weights) -> tuple[Weights, Tensor, Tensor]:
        """The trained body under the received head, and features `[rows, H]` with their labels."""
        learner, body = client.learner, ~self.context.layout.mask("head")
        fit = partial(learner.fit, received, client.train, train_only=body, memory=client.memory("fit"))
        if self.options.features_from == "training":
            seen = self._room(client)
            trained, rows = fit(loss=partial(recorded_loss, head=learner.head), state=seen), int(seen["rows"][0])
            if rows:
                return trained, seen["features"][:rows], seen["labels"][:rows]
        else:
            trained = fit()
        return trained, learner.features(trained, client.train), client.train.labels

    def _room(self, client: Client) -> dict[str, Tensor]:
        """Where the features of a fit are written: as many rows as there may be, and which are the next batch's."""
        train, count = self.context.train, len(client.train)
        size = count if train.batch_size == "full" else int(train.batch_size)
        most = train.steps * min(count, size) if train.steps else train.epochs * count
        weight, _ = self.context.layout.linear_head()
        device = client.learner.device
        return {
            "features": torch.empty(most, weight.shape[1], dtype=client.learner.dtype, device=device),
            "labels": torch.empty(most, dtype=torch.int64, device=device),
            "rows": torch.arange(min(count, size), device=device),
        }

    @one_thread
    def adapted(
        self, client: Client, features: Tensor, labels: Tensor, common: Common
    ) -> tuple[Gaussians, list[float]]:
        """Local statistics mixed with the global ones, and the weights of the local means and covariance."""
        classes = len(common.plain.means)
        dealt = split(features.flatten(1).cpu(), labels.cpu(), self.options.num_folds, classes)
        parts = [(rows.to(torch.float64), y) for rows, y in dealt]
        moments = [Moments.of(*part, classes) for part in parts]
        betas = self._betas(client, parts[:-1], moments[:-1], common)
        return mixed(betas, self._statistics(moments, common), common.plain), betas

    def _betas(self, client: Client, folds: list[Rows], moments: list[Moments], common: Common) -> list[float]:
        options = self.options
        if options.local_beta:
            return [1.0, 1.0]
        if options.beta is not None:
            return options.beta if isinstance(options.beta, list) else [options.beta] * 2
        if not folds:
            return [0.0, 0.0]
        tries = []
        for number, held in enumerate(folds):
            rest = self._statistics([*moments[:number], *moments[number + 1 :]], common)
            tries.append(Fold.of(common.start, shrunk(rest, options.eps), *held))
        found = minimize(
            partial(validation, folds=tries, start=common.start, prior=self._prior(client)),
            np.full(1 if options.single_beta else 2, 0.5),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * (1 if options.single_beta else 2),
            options={"maxiter": options.beta_max_iter, "gtol": options.beta_gtol},
        )
        if not np.isfinite([found.fun, *found.x]).all():
            return client.state.get("betas", [0.5, 0.5])
        return [float(found.x[0]), float(found.x[-1])]

    def _statistics(self, moments: list[Moments], common: Common) -> Gaussians:
        options = self.options
        return statistics(moments, common.plain.means, options.num_folds, options.cov_offset, options.cov_ridge)

    def _prior(self, client: Client) -> Tensor:
        return label_prior(client.train.labels.cpu(), self.context.classes, self.options.eps)

    def _head(self, gaussians: Gaussians) -> tuple[Tensor, Tensor]:
        return discriminant(gaussians, self.options.eps)

    def _with_head(self, client: Client, weights: Weights, head: tuple[Tensor, Tensor]) -> Weights:
        """The weights with this head, for the client's prior of labels, written to where they are."""
        weight, bias = self.context.layout.linear_head()
        assert bias is not None
        slopes, offsets = head
        weights.params[weight.start : weight.stop] = slopes.flatten()
        weights.params[bias.start : bias.stop] = offsets + self._prior(client).log()
        return weights

    def common_of(self, download: Message) -> Common:
        """The global statistics in a download, worked out once for all clients of a round, who get the same."""
        sent, last = (download.means, download.covariance), self._last
        if last is None or not all(map(torch.equal, last.sent, sent)):
            kept = (sent[0].clone(), sent[1].clone())  # what was sent may lie where the next round's will
            weight, _ = self.context.layout.linear_head()
            means, upper = (part.cpu().to(torch.float64) for part in kept)
            plain = Gaussians(means.view(weight.shape), unpacked(upper, weight.shape[1]))
            last = self._last = Common(kept, plain, shrunk(plain, self.options.eps), self._head(plain))
        return last

    def personal(self, client: Client, download: Message) -> Predictor:
        received, common = super().receive(client, download), self.common_of(download)
        features = client.learner.features(received, client.train)
        adapted, _ = self.adapted(client, features, client.train.labels, common)
        return self._with_head(client, received.clone(), self._head(adapted))

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        (weight, _), dtype = self.context.layout.linear_head(), server.initial.params.dtype
        draw = torch.Generator().manual_seed(self.context.seed)
        server.means = torch.rand(weight.shape, dtype=dtype, generator=draw).flatten()
        server.covariance = packed(torch.eye(weight.shape[1], dtype=dtype))

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        message.tensors |= {"means": server.means, "covariance": server.covariance}
        return message

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        super().aggregate(server, uploads)
        weights = self.weights(uploads)
        server.means = weighted_mean([u.means for u in uploads], weights)
        server.covariance = weighted_mean([u.covariance for u in uploads], weights)


def recorded_loss(net: LightningModule, batch: Any, s: Any, head: nn.Module) -> Tensor:
    """The client's own loss; the batch's features and labels are written behind those of the batches before."""
    loss, features, _ = task_loss_through(net, batch, head)
    rows = s.rows[: len(features)]
    s.features.index_copy_(0, rows, features.detach().flatten(1).to(s.features.dtype))
    s.labels.index_copy_(0, rows, batch[1])
    s.rows += len(features)
    return loss
