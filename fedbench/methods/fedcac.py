"""FedCAC, "Bold but Cautious" (Wu, Liu, Niu, Zhu, Tang; ICCV 2023).

Private: only the BatchNorm step counters (and, with `bn_stats=local`, the running statistics). Up: the whole model
and one bit per parameter, its critical ones; down: a client's own mean and the mean of all, which this server merges
(eq. 11) before it sends them, because it holds the mask. Bytes are counted as the paper would send them.

Where we decide:
- Overlap: the paper prints |M_i - M_j| / 2n, which is 0 for equal masks. Its text, eq. 8 and the authors' code (Fling)
  need agreement, `1 - |M_i - M_j| / 2K`. `overlap=literal` is the printed formula: it picks the least similar.
- After round beta no clients collaborate, as the text says; the formula, and the code, would continue if all overlaps
  are equal, as with two participants. The threshold has a tolerance, so the best pair stays at t = beta.
- Both means are uniform; the code weights the mean of all by images (`weighting`). Ties go to the lower index, so that
  all masks have equal size; the code takes all equal values and never an exact zero (`ties=threshold`).
- Masks, overlaps and means are those of the round's participants. A client that sits out keeps its model; the code
  averages stale ones.
"""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.means import group_means, masked_merge, mean
from fedbench.aggregation.packed import mask_counts, mask_overlaps, mask_to_bits
from fedbench.aggregation.ranks import largest
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Encoded, Message, Upload
from fedbench.methods.server import ServerState
from fedbench.module.layout import Layout
from fedbench.module.masks import Masks
from fedbench.module.weights import Weights
from fedbench.results.trace import COLLABORATORS, LAST_ROUND, Trace, mask_trace


class FedCAC(Method["FedCAC.Options", PrivateState, "FedCAC.Server"]):
    """Critical parameters are averaged among clients with similar masks, the others among all."""

    about = About("critical parameters are shared among the alike", "parameter decoupling", "Wu et al., ICCV", 2023)
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg:weighting=uniform,buffers=private": {"method.tau": 0, "method.bn_stats": "local", "participation": 1.0},
        "local": {"method.tau": 1, "method.collaboration": "none", "method.bn_stats": "local"},
    }
    traces = (
        mask_trace("critical_share", "critical share"),
        Trace(
            "mask_agreement",
            "Agreement of masks by layer",
            "also selected by another client, %",
            "layers",
            chart="mask-agreement",
            note="Last round.",
        ),
        Trace("overlap", "Overlap of masks, %", "other client", "pairs", is_share=True, note=LAST_ROUND),
        COLLABORATORS,
    )

    also_sends = "their mask"

    class Options(Method.UniformOptions):
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
        buffers: ClassVar[Any] = None  # type: ignore[misc] # bn_stats says what becomes of them
        bn_stats: Literal["critical", "local", "global"] = Field(
            "critical", description="running statistics: averaged among collaborators, never sent, or among all"
        )

    @dataclass
    class Server(ServerState):
        """rows, buffer_rows: the merged model of every client that has trained."""

        rows: dict[int, Tensor] = field(default_factory=dict)
        buffer_rows: dict[int, Tensor] = field(default_factory=dict)

    def check(self) -> tuple[str, ...]:
        if self.options.ties == "threshold" and self.options.selection != "sensitivity":
            raise ConfigError("method.ties = 'threshold' is defined for method.selection = sensitivity only: use exact")
        return ()

    def private(self, layout: Layout) -> Masks:
        local = self.options.bn_stats == "local"
        buffers, counters = torch.full((layout.buffer_size,), local), torch.full((layout.counter_size,), True)
        return Masks(layout.nothing().params, buffers, counters)

    def train(self, client: Client, received: Weights) -> Upload:
        trained = client.fit(received, client.train)
        return self.upload(client, trained, mask=mask_to_bits(self.critical(client, received.params, trained.params)))

    def critical(self, client: Client, received: Tensor, trained: Tensor) -> Tensor:
        """The mask `[N]` of critical parameters (eq. 5 and 6), tensor by tensor."""
        scores = sensitivity(received, trained)
        stream = client.generator("mask") if self.options.selection == "random" else None
        mask = torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
        for layer in self.context.layout.params:
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

    def send(self, server: Server, client: int) -> Message:
        """The client's merged model, or the first one of all.

        Its bytes count in the round that computes the means, although it is sent when the next round begins: two models
        while clients collaborate, then the mean of all.
        """
        models = 2 if self.collaborates(server.round) else 1
        params, buffers = server.rows.get(client, server.params), server.buffer_rows.get(client, server.buffers)
        statistics = models if models == 2 or self.options.bn_stats == "global" else 0
        return (
            super()
            .send(server, client)
            .add(
                params=Encoded(params, models * params.nbytes),
                buffers=Encoded(buffers, statistics * buffers.nbytes),
            )
        )

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        masks = torch.stack([u.mask for u in uploads])
        # Overlaps cost as much as the means of all: computed only if they decide or are traced.
        decides = self.collaborates(server.round)
        overlap = self.overlap(masks) if decides or server.traced else None
        partners = torch.zeros(len(masks), len(masks), dtype=torch.bool)
        if decides and overlap is not None:
            partners = self.collaborators(overlap, server.round)
        groups = partners | torch.eye(len(uploads), dtype=torch.bool)
        self._merge(server, uploads, masks, groups)
        if overlap is not None and server.traced:
            self._trace(server, [u.client for u in uploads], masks, overlap, partners)

    def global_model(self, server: Server, initial: Weights) -> None:
        """None: no client ever has the mean of all."""

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

    def _merge(self, server: Server, uploads: list[Upload], masks: Tensor, groups: Tensor) -> None:
        """Eq. 9 to 11. Parameters overwrite the uploads, which saves n x N floats."""
        if self.options.noncritical == "as_critical":
            masks = torch.full_like(masks, 255)
        masked_merge([u.params for u in uploads], masks, groups, self.weights(uploads))
        buffers = [u.buffers for u in uploads]
        everywhere = self.options.bn_stats == "global"
        means = [mean(buffers)] * len(uploads) if everywhere else group_means(buffers, groups)
        for upload, merged in zip(uploads, means, strict=True):
            server.rows[upload.client], server.buffer_rows[upload.client] = upload.params, merged

    def _trace(self, server: Server, clients: list[int], masks: Tensor, overlap: Tensor, partners: Tensor) -> None:
        """Traces masks and collaborators; masks need at least two participants."""
        for client, count in zip(clients, partners.sum(1).tolist(), strict=True):
            server.trace("collaborators", count, client)
        if len(clients) == 1:
            return
        if self.options.collaboration == "time_varying":
            server.trace("threshold", threshold(overlap, server.round / self.beta))
        counts = mask_counts(masks, self.context.layout.size)
        parts = {f"/{layer.name}": counts[layer.start : layer.stop] for layer in self.context.layout.params}
        for name, part in {"": counts, **parts}.items():
            server.trace(f"critical_share{name}", float(part.mean()) / len(clients))
            server.trace(f"mask_agreement{name}", common_share(part, len(clients)))
        if server.traces_pairs(self.context.clients, self.context):
            for i, j in permutations(range(len(clients)), 2):
                server.trace(f"overlap/{clients[j]}", float(overlap[i, j]), clients[i])


def sensitivity(received: Tensor, trained: Tensor) -> Tensor:
    """|(trained - received) * trained| `[N]`: the change of the loss without an element (eq. 5)."""
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
    """The threshold, from the mean overlap of two clients up to the largest as `progress` goes to 1 (eq. 7)."""
    # NumPy, because the order of a torch sum depends on the number of threads.
    pairs = overlap.numpy()[~np.eye(len(overlap), dtype=bool)]
    average = float(pairs.mean())
    return average + progress * (float(pairs.max()) - average)


def common_share(counts: np.ndarray, clients: int) -> float:
    """Probability that a critical element of a client is critical for another; counts: clients per element."""
    counts = counts.astype(np.float64)
    total = counts.sum()
    return float((counts * (counts - 1)).sum() / (total * (clients - 1))) if total else float("nan")
