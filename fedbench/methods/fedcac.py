"""FedCAC, "Bold but Cautious" (Wu, Liu, Niu, Zhu, Tang; ICCV 2023).

Private: only the BatchNorm step counters (and, with `bn_stats=local`, the running statistics). Up: the whole model
and one bit per parameter, its critical ones; down: a client's own mean and the mean of all, which this server merges
(eq. 11) before it sends them, because it holds the mask. Bytes are counted as the paper would send them.

Where we decide:
- Overlap: the paper prints |M_i - M_j| / 2n, which is 0 for equal masks. Its text, eq. 8 and the authors' code (Fling)
  need agreement, `1 - |M_i - M_j| / 2K`. `overlap=literal` is the printed formula: it picks the least similar.
- After round beta nobody collaborates, as the text says; the formula, and the code, would go on where all overlaps
  are equal, as with two participants. The threshold has a tolerance, so that the best pair stays at t = beta.
- Both means are uniform; the code weights the mean of all by images (`weighting`). Ties go to the lower index, so that
  all masks have equal size; the code takes all equal values and never an exact zero (`ties=threshold`).
- Masks, overlaps and means are those of the round's participants. Who sits out keeps its model; the code averages
  stale ones.

Longer than other method files because its options are the variants of the paper's figures and tables.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import group_means, largest, mask_counts, mask_overlaps, mask_to_bits, masked_merge, mean
from fedbench.errors import ConfigError
from fedbench.learner.layout import Layout
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server, Upload

MOST_PAIRS = 20
"""Clients up to which the overlap of every pair is traced."""


class Aggregation(NamedTuple):
    """What traces tell of: packed masks `[n, bytes]`, overlaps `[n, n]` where they decided, partners bool `[n, n]`."""

    round: int
    clients: list[int]
    masks: Tensor
    overlap: Tensor | None
    partners: Tensor


class FedCAC(Method):
    """Critical parameters are averaged among clients with similar masks, the others among all."""

    class Options(Method.Options):
        tau: float = Field(0.5, ge=0, le=1, description="critical share of every parameter tensor, sec. 3.3")
        beta: float | None = Field(
            None, ge=1, description="round after which collaboration ends, eq. 7; none: a fifth of the rounds"
        )
        selection: Literal["sensitivity", "random", "reverse"] = Field(
            "sensitivity", description="critical: the most sensitive, random, or the least sensitive, fig. 3"
        )
        collaboration: Literal["time_varying", "none", "top_k"] = Field(
            "time_varying", description="with whom: a rising threshold (eq. 8), nobody, or the k most alike, fig. 4"
        )
        top_k: int = Field(1, ge=1, description="collaborators of collaboration=top_k, fig. 4")
        noncritical: Literal["all", "as_critical"] = Field(
            "all", description="who averages the other parameters: all, or the collaborators, table 3"
        )
        overlap: Literal["critical", "all", "literal"] = Field(
            "critical", description="shared critical share, the same over all parameters, or eq. 5 as printed"
        )
        ties: Literal["exact", "threshold"] = Field(
            "exact", description="lower index first, or all equal values as the authors' code"
        )
        bn_stats: Literal["critical", "local", "global"] = Field(
            "critical", description="running statistics: averaged among collaborators, never sent, or among all"
        )
        weighting: Literal["uniform", "samples"] = Field(
            "uniform", description="weight of a client in the mean of all: the same, or its training images"
        )

    last: Aggregation | None = None

    def check(self) -> None:
        if self.options.buffers != "average":
            raise ConfigError("method.buffers = 'private': fedcac names it method.bn_stats = local")
        if self.options.ties == "threshold" and self.options.selection != "sensitivity":
            raise ConfigError("method.ties = 'threshold' is defined for method.selection = sensitivity only: use exact")

    def private(self, layout: Layout) -> tuple[Tensor, Tensor]:
        params, buffers = super().private(layout)
        return params, buffers.fill_(self.options.bn_stats == "local")

    def private_counters(self, layout: Layout, buffers: Tensor) -> Tensor:
        return torch.ones(layout.counter_size, dtype=torch.bool)

    def global_weights(self, server: Server) -> None:
        """No client ever holds the mean of all."""
        return None

    # -- the client half ----------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        trained = client.learner.fit(received, client.train, memory=client.memory("fit"))
        return self.upload(client, trained, mask=mask_to_bits(self.critical(client, received.params, trained.params)))

    def critical(self, client: Client, received: Tensor, trained: Tensor) -> Tensor:
        """The mask `[N]` of critical parameters (eq. 5 and 6), tensor by tensor."""
        scores = sensitivity(received, trained)
        stream = client.generator("mask") if self.options.selection == "random" else None
        mask = torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
        for layer in self.context.layout.layers():
            part = slice(layer.start, layer.stop)
            mask[part] = self._critical_in_layer(scores[part], int(self.options.tau * layer.size), stream)
        return mask

    def _critical_in_layer(self, scores: Tensor, count: int, stream: torch.Generator | None) -> Tensor:
        if self.options.selection == "random":
            mask = torch.zeros(len(scores), dtype=torch.bool)
            mask[torch.randperm(len(scores), generator=stream)[:count]] = True
            return mask
        if self.options.ties == "threshold":
            return above_threshold(scores, count)
        return largest(scores if self.options.selection == "sensitivity" else -scores, count)

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.rows, server.buffer_rows = {}, {}

    def download(self, server: Server, client: int) -> Message:
        """The client's merged model, or the first one of all."""
        message = self.message(
            params=server.rows.get(client, server.params),
            buffers=server.buffer_rows.get(client, server.buffers),
            counters=server.counters,
        )
        message.charge = self.download_bytes(message, server.round)
        message.given = ["params"] if client in server.rows else []
        return message

    def download_bytes(self, message: Message, round: int) -> int:
        """Bytes of a round's means: two models while clients collaborate, then the mean of all.

        Counted with the round that makes the means, although this harness hands them out when the next one begins.
        """
        params, buffers = message.params.nbytes, message.buffers.nbytes
        if self.collaborates(round):
            return 2 * (params + buffers)
        return params + (buffers if self.options.bn_stats == "global" else 0)

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        masks = torch.stack([u.mask for u in uploads])  # kept for the traces; the uploads' shared memory is not
        # Overlaps cost as much as the means of all: only where they decide.
        overlap, partners = None, torch.zeros(len(masks), len(masks), dtype=torch.bool)
        if self.collaborates(server.round):
            overlap = self.overlap(masks)
            partners = self.collaborators(overlap, server.round)
        groups = partners | torch.eye(len(uploads), dtype=torch.bool)
        self._merge_params(server, uploads, masks, groups)
        self._merge_buffers(server, uploads, groups)
        self.last = Aggregation(server.round, [u.client for u in uploads], masks, overlap, partners)

    def overlap(self, masks: Tensor) -> Tensor:
        return overlaps(mask_overlaps(masks), self.context.layout.size, self.options.overlap)

    def collaborates(self, round: int) -> bool:
        if self.options.collaboration == "time_varying":
            return round <= self.beta
        return self.options.collaboration == "top_k"

    @property
    def beta(self) -> float:
        return self.options.beta or max(1.0, 0.2 * self.context.rounds)

    def collaborators(self, overlap: Tensor, round: int) -> Tensor:
        """bool `[n, n]`: row i marks C_i, the others with whom i averages its critical parameters (eq. 8)."""
        others = ~torch.eye(len(overlap), dtype=torch.bool)
        if not self.collaborates(round) or len(overlap) == 1:
            return torch.zeros_like(others)
        if self.options.collaboration == "top_k":
            order = overlap.masked_fill(~others, -torch.inf).argsort(dim=1, descending=True, stable=True)
            return torch.zeros_like(others).scatter_(1, order[:, : self.options.top_k], True) & others
        return (overlap >= threshold(overlap, round / self.beta) - 1e-12) & others

    def _merge_params(self, server: Server, uploads: list[Upload], masks: Tensor, groups: Tensor) -> None:
        """Eq. 9 to 11, written over the uploads, which saves n x N floats."""
        if self.options.noncritical == "as_critical":
            masks = torch.full_like(masks, 255)
        masked_merge([u.params for u in uploads], masks, groups, self.weights(uploads))
        server.rows.update({u.client: u.params for u in uploads})

    def _merge_buffers(self, server: Server, uploads: list[Upload], groups: Tensor) -> None:
        buffers = [u.buffers for u in uploads]
        everywhere = self.options.bn_stats == "global"
        means = [mean(buffers)] * len(uploads) if everywhere else group_means(buffers, groups)
        server.buffer_rows.update(zip([u.client for u in uploads], means, strict=True))

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        """Needs at least two participants to say anything of masks; nothing where nobody's upload arrived."""
        if self.last is None or self.last.round != server.round:
            return {}
        _, clients, masks, overlap, partners = self.last
        seen: dict[tuple[int, str], float] = {
            (c, "collaborators"): float(count) for c, count in zip(clients, partners.sum(1).tolist(), strict=True)
        }
        if len(clients) == 1:
            return seen
        overlap = self.overlap(masks) if overlap is None else overlap
        counts = mask_counts(masks, self.context.layout.size)
        if self.options.collaboration == "time_varying":
            seen[-1, "threshold"] = threshold(overlap, server.round / self.beta)
        parts = {f"/{layer.name}": counts[layer.start : layer.stop] for layer in self.context.layout.layers()}
        for name, part in {"": counts, **parts}.items():
            seen[-1, f"mask_share{name}"] = float(part.mean()) / len(clients)
            seen[-1, f"mask_agreement{name}"] = common_share(part, len(clients))
        if self.context.clients <= MOST_PAIRS:
            for i, j in zip(*np.nonzero(~np.eye(len(clients), dtype=bool)), strict=True):
                seen[clients[i], f"overlap/{clients[j]}"] = float(overlap[i, j])
        return {key: value for key, value in seen.items() if value == value}


def sensitivity(received: Tensor, trained: Tensor) -> Tensor:
    """|(trained - received) * trained| `[N]`: how much the loss would change without an element (eq. 5)."""
    return trained.sub(received).mul_(trained).abs_()


def above_threshold(scores: Tensor, count: int) -> Tensor:
    """The authors' code: all that reach the count-th largest score; a score of (nearly) 0 only if nothing moved."""
    if not count:
        return torch.zeros_like(scores, dtype=torch.bool)
    least = scores[largest(scores, count)].min()
    moved = scores[scores > 1e-20]
    if least <= 1e-10 and len(moved):
        least = moved.min()
    return scores >= least


def overlaps(common: Tensor, size: int, kind: str) -> Tensor:
    """O `[n, n]`, float64, of masks of `size` elements with `common` ones (`mask_overlaps`)."""
    ones = common.diagonal().to(torch.float64)
    distance = ones[:, None] + ones - 2 * common
    if kind == "literal":
        return distance / (2 * size)
    if kind == "all":
        return 1 - distance / (2 * size)
    return torch.where(ones[:, None] > 0, 1 - distance / (2 * ones[:, None]), 0.0)


def threshold(overlap: Tensor, progress: float) -> float:
    """The bar that rises from the average overlap of two clients to the largest as `progress` goes to 1 (eq. 7)."""
    # NumPy, because the order of a torch sum depends on the number of threads.
    pairs = overlap.numpy()[~np.eye(len(overlap), dtype=bool)]
    average = float(pairs.mean())
    return average + progress * (float(pairs.max()) - average)


def common_share(counts: np.ndarray, clients: int) -> float:
    """How likely a critical element of one client is critical for another one; counts: clients per element."""
    counts = counts.astype(np.float64)
    total = counts.sum()
    return float((counts * (counts - 1)).sum() / (total * (clients - 1))) if total else float("nan")
