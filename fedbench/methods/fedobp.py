"""FedOBP, federated optimal brain personalization with few personalized parameters (anonymous submission, 2025).

Private: the client's last trained model; its change in training (score=gradient) and the running average of scores
(score_ema). Up and down: the whole model, as in FedAvg; the mask of personal parameters is never sent, and personal
parameters are averaged with the others (eq. 2).

Where we decide:
- Scores compare the client's last model with the received one before anything is changed, in float64, because squares
  of small float32 differences are all 0 and tie. Only scores strictly above the quantile are personal.
- The quantile is an exact order statistic. The paper defines it as an infimum (`quantile_rule=inf`) and counts so in
  sec. 4.2; its table 5 counts what a linearly interpolated quantile selects (`linear`), mostly one more.
- `quantile` is .9999 (sec. 3.2). The paper's advice is .9995; its table 5 has .995 to .99998 by data set.
- Eq. 11 divides by the number of clients and by the images; that would shrink the model, so we take eq. 2.
- A client's model before its first training is the common initial one, as in the authors' code.
- Eq. 16 has the gradient on all clients' data, which no client has; `taylor` takes the client's own.
- The authors' code turns running statistics, and even step counters, into parameters, which then score high;
  `include_buffers` does that with the statistics.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.ranks import above_quantile, min_max, quantile_rank
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState
from fedbench.methods.messages import Upload
from fedbench.module.layout import Slot
from fedbench.module.masks import Entries, choose
from fedbench.module.weights import Weights
from fedbench.results.trace import Trace, mask_trace


@dataclass(eq=False)
class MergedByScore(Weights):
    """A client's start, the mask of its personal entries of `vector_of`, and the scores of the mask."""

    mask: Tensor
    scores: Tensor


class FedOBP(Method["FedOBP.Options", "FedOBP.State"]):
    """Every client keeps the few parameters farthest from the global model."""

    about = About(
        "the few parameters that moved furthest from the global model stay private",
        "parameter decoupling",
        "anonymous submission",
        2025,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg": {"method.quantile": 1},
        "local": {"method.quantile": 0, "method.buffers": "private", "participation": 1.0},
        "fedper": {"method.quantile": 0, "method.scope": "head", "participation": 1.0},
    }
    traces = (
        mask_trace("personal_share", "private share"),
        Trace("personal_location", "By layer over rounds", "of all personal parameters", "location"),
    )

    class Options(Method.Options):
        score: Literal["obp", "taylor", "gradient", "fisher"] = Field(
            "obp",
            description="what makes a parameter personal: squared distance (eq. 19), gradient times distance (eq. 16), "
            "movement in the last training (eq. 5), Fisher information (eq. 6)",
        )
        quantile: float = Field(0.9999, ge=0, le=1, description="share of parameters that stay shared, sec. 3.2")
        quantile_rule: Literal["inf", "linear"] = Field(
            "inf", description="rank of the threshold: as defined above eq. 7, or as counted in table 5"
        )
        normalization: Literal["none", "layer", "global"] = Field(
            "none", description="min-max of the scores: none, in every tensor, or over all, table 8"
        )
        scope: Literal["all", "head"] = Field(
            "all", description="what may be personal: every parameter or the classifier's, table 8"
        )
        fisher_estimate: Literal["batch", "sample"] = Field(
            "batch", description="Fisher score: squared mean gradient (eq. 6), or mean of squared ones (authors' code)"
        )
        first_participation: Literal["init", "global"] = Field(
            "init", description="model of a client that never trained: the initial one, or none, so that all is shared"
        )
        score_ema: float = Field(0.0, ge=0, lt=1, description="weight of the earlier scores in a running average")
        include_buffers: bool = Field(False, description="score running statistics too, as the authors' code")

    @dataclass
    class State(PrivateState):
        """local: `vector_of` of the last trained model; moved: its change in training; ema: earlier scores."""

        local: Tensor | None = None
        moved: Tensor | None = None
        ema: Tensor | None = None

    def check(self) -> Iterator[str]:
        options = self.options
        if options.score not in ("obp", "gradient"):
            self.refuse_private_steps("gradients of samples, by which entries are chosen")
        if options.scope == "head":
            self.context.layout.mask("head")
        if options.include_buffers and (options.scope != "all" or options.buffers != "average"):
            raise ConfigError(
                "method.include_buffers = true: needs method.scope = all and method.buffers = average, "
                f"not {options.scope} and {options.buffers}"
            )
        size, q = self.part.size, options.quantile
        if q < 1 and quantile_rank(size, q, self.rule) >= size:
            yield f"fedobp: a quantile of {q} leaves none of {size} numbers personal: lower method.quantile"

    @property
    def rule(self) -> Literal["inf", "linear"]:
        return self.options.quantile_rule

    @cached_property
    def part(self) -> Entries:
        """S, the entries of `vector_of` that may be personal."""
        layout = self.context.layout
        if self.options.scope == "head":
            return Entries(layout.mask("head"))
        return Entries(torch.ones(sum(slot.size for slot in self.slots), dtype=torch.bool))

    @cached_property
    def slots(self) -> Sequence[Slot]:
        """The tensors of `vector_of`, each at its place in the vector."""
        layout = self.context.layout
        return [*layout.params, *(shifted_slots(layout.buffers, layout.size) if self.options.include_buffers else [])]

    def vector_of(self, weights: Weights) -> Tensor:
        """The compared, kept and merged vector: parameters `[N]`, and with `include_buffers` the statistics."""
        return torch.cat([weights.params, weights.buffers]) if self.options.include_buffers else weights.params

    def receive(self, client: Client[State]) -> Weights:
        """The received model with the client's own values where the mask is 1 (eq. 9)."""
        shared, state, options = super().receive(client), client.state, self.options
        known = state.moved if options.score == "gradient" else state.local
        if known is None and (options.score == "gradient" or options.first_participation == "global"):
            return shared
        mine = self.vector_of(client.initial) if state.local is None else state.local
        scores = self._scores(client, mine, shared)
        mask = self.mask(scores)
        merged, size = choose(mask, mine, self.vector_of(shared)), self.context.layout.size
        buffers = merged[size:] if options.include_buffers else shared.buffers
        return MergedByScore(merged[:size], buffers, shared.counters, mask, scores)

    def _scores(self, client: Client[State], mine: Tensor, shared: Weights) -> Tensor:
        """Scores of `vector_of`, float64, averaged with the earlier ones."""
        scores, share = self._raw_scores(client, mine, shared), self.options.score_ema
        if share and client.state.ema is not None:
            scores = (1 - share) * scores + share * client.state.ema
        return scores

    def _raw_scores(self, client: Client[State], mine: Tensor, shared: Weights) -> Tensor:
        if self.options.score == "gradient":
            assert client.state.moved is not None
            return client.state.moved.to(torch.float64)
        distance = mine.to(torch.float64) - self.vector_of(shared)
        if self.options.score == "obp":
            return distance.square_()
        learner, at = client.learner, shared.replace(params=mine[: self.context.layout.size])
        scores = torch.zeros_like(distance)  # statistics have no gradient
        if self.options.score == "taylor":
            slope = learner.full_gradient(at, client.train)
            scores[: len(slope)] = (slope * distance[: len(slope)]).abs_()
        elif self.options.fisher_estimate == "batch":
            scores[: self.context.layout.size] = learner.full_gradient(at, client.train).square_()
        else:
            scores[: self.context.layout.size] = learner.squared_gradients(at, client.train)
        return scores

    def mask(self, scores: Tensor) -> Tensor:
        """bool: the scores strictly above one quantile over all eligible entries (eq. 7 and 8)."""
        part = self.part
        if self.options.normalization == "layer":
            scores = torch.cat([min_max(scores[slot.start : slot.stop]) for slot in self.slots])
        chosen = part.take(scores)
        if self.options.normalization == "global":
            chosen = min_max(chosen)
        personal = above_quantile(chosen, self.options.quantile, self.rule)
        return part.put(torch.zeros_like(scores, dtype=torch.bool), personal)

    def train(self, client: Client[State], received: Weights) -> Upload:
        trained, state = client.fit(received, client.train), client.state
        state.local = self.vector_of(trained)
        if self.options.score == "gradient":
            state.moved = (state.local - self.vector_of(received)).abs_()
        merged = received if isinstance(received, MergedByScore) else None
        if self.options.score_ema and merged is not None:
            state.ema = merged.scores
        return self.upload(client, trained, traces=mask_traces(self.slots, None if merged is None else merged.mask))


def shifted_slots(slots: Iterable[Slot], size: int) -> list[Slot]:
    """The same tensors, shifted by an offset in the vector."""
    return [replace(slot, start=slot.start + size, stop=slot.stop + size) for slot in slots]


def mask_traces(slots: Iterable[Slot], mask: Tensor | None) -> dict[str, float]:
    """Counts of personal entries (fig. 5 and 10), in total and by layer.

    `personal_count`; `personal_location`: share of all personal entries that are in a layer (0 if there are none);
    `personal_share`: personal share of the model, or of a layer. No mask counts as an empty one.
    """
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    slots = list(slots)
    by_slot = [0] * len(slots) if mask is None else torch.stack([mask[s.start : s.stop].sum() for s in slots]).tolist()
    for slot, count in zip(slots, by_slot, strict=True):
        layer = slot.name.rpartition(".")[0] or slot.name
        counts[layer] = counts.get(layer, 0) + count
        sizes[layer] = sizes.get(layer, 0) + slot.size
    total = sum(counts.values())
    traces = {"personal_count": float(total), "personal_share": total / sum(sizes.values())}
    for layer, count in counts.items():
        traces[f"personal_count/{layer}"] = float(count)
        traces[f"personal_location/{layer}"] = count / total if total else 0.0
        traces[f"personal_share/{layer}"] = count / sizes[layer]
    return traces
