"""CO-PFL, Contribution-Oriented Personalized Federated Learning (Xing, Dong, Fan, Zeng, Leung, Deen, Hu; 2025).

Private: a growing mask of personal parameters and their values, two pairs of Adam moments, the float buffers. Up: the
other parameters, the mask and one score; down: the server's vector and mask, and the client's last weight (the step
before, too, for who missed it). Two versions of the paper: V1, an anonymous submission, and V2, a journal's.

Where we decide:
- Eq. 4b averages squares with beta1 while eq. 5a corrects with beta2, and 5a divides by 0 at the first step: beta2 in
  both, and moments are updated before they are used.
- Algorithm 2 starts both phases from the received model, the text calls them alternating (`phase_coupling`).
- Who merges with which mask is nowhere written: the server's, because a coordinate that is personal for anybody never
  moves again at the server (`merge_mask`, `server_rule`). Masks of this round count at once, unlike FedSelect's.
- The leave-one-out model takes the uploaded model out of the server's, the leave-one-out step this round's update out
  of the last step of the server, on all coordinates (`loo_model`, `loo_update`). A score is taken on training images.
- The budget is a share of all parameters and is filled with the largest changes.

With many clients and the paper's defaults nearly everything is personal for somebody after a few rounds: then the
server no longer moves and scores mean little. The trace `live_share` and a remark tell.

Longer than other method files because every part of the method has the switches of the paper's ablations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from math import sqrt
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregators import bits_to_mask, largest, mask_counts, mask_to_bits, masked_mean, normalised
from fedbench.bits import bitmask, choose, holds_one, without
from fedbench.errors import ConfigError
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Message, Method, Server, Upload

LEAST_SHARED = 0.01
"""Share of parameters that still move at the server, below which a run says so."""

ALL = 1 - 1e-12
"""Weight of a client in the last mean from which nobody else was in it."""


class CoPFL(Method):
    """Personal parameters by change, trained with moments of their own; the others weighted by contribution."""

    class Options(Method.Options):
        personalization_rate: float = Field(
            0.25, ge=0, le=1, description="share of all parameters that a client may select in a round, p, eq. 6 and 7"
        )
        personalization_budget: float = Field(
            0.5, ge=0, le=1, description="largest share of all parameters that become personal, gamma, eq. 7"
        )
        beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of gradients, eq. 4a")
        beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean of squared gradients, eq. 4b")
        eps: float = Field(1e-8, gt=0, description="added to the root of the squares' mean, eq. 5")
        moments: Literal["mask_aware", "shared", "none"] = Field(
            "mask_aware", description="a pair for each part, one pair for both, or plain steps, fig. 3 and 7"
        )
        keep_moments: bool = Field(True, description="keep the moments from round to round, eq. 5a")
        grad_score: bool = Field(True, description="score by deviation from the others' step, eq. 8, table 3")
        pred_score: bool = Field(True, description="score by loss of the model without this client, eq. 9, table 3")
        phase_coupling: Literal["parallel", "sequential"] = Field(
            "parallel", description="the shared phase starts from the received model, or from the personal phase's"
        )
        server_rule: Literal["or_mask", "per_index"] = Field(
            "or_mask", description="the server moves what nobody holds personal, or averages those who do not"
        )
        merge_mask: Literal["server", "client"] = Field(
            "server", description="a client keeps its values where anybody's mask is 1, or its own"
        )
        select_from: Literal["all", "unmasked"] = Field(
            "all", description="the selected share is of all parameters by change, or of those not yet personal"
        )
        loo_update: Literal["current", "previous"] = Field(
            "current", description="update taken out of the server's step: this round's, or the client's one before"
        )
        loo_model: Literal["uploaded", "received"] = Field(
            "uploaded", description="model taken out of the server's: the one last uploaded, or the one received now"
        )
        buffers: Literal["average", "private"] = Field(
            "private", description="running statistics: never leave the client, or averaged like the parameters"
        )
        weighting: ClassVar[Any] = None  # type: ignore[misc] # no option: the scores decide

    train_defaults: ClassVar[dict[str, Any]] = {
        "optimizer": "sgd",
        "lr": 1e-4,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "batch_size": 32,
        "epochs": 3,
    }
    own_optimizer = True
    wire: Mapping[str, float] = {"counters": 0, "alpha": 32, "score": 32}

    def check(self) -> None:
        if not (self.context.train.steps or self.context.train.epochs):
            raise ConfigError("train.epochs = 0: co-pfl trains at least 1 epoch in each of its two phases")

    def warnings(self) -> list[str]:
        train = self.context.train
        if train.optimizer == "sgd" and not train.momentum and not train.keep_optimizer:
            return []
        return [
            "co-pfl: makes its own steps (method.moments): train.optimizer, train.momentum and train.keep_optimizer "
            "have no effect"
        ]

    def remarks(self, server: Server) -> list[str]:
        if server.live >= LEAST_SHARED:
            return []
        return [
            f"co-pfl: less than {LEAST_SHARED:.0%} of the parameters still move at the server, the rest is personal "
            "for somebody: from here on it is nearly local training; lower method.personalization_budget to share more"
        ]

    def global_weights(self, server: Server) -> None:
        """No client holds the server's vector: it stands still where anybody's mask is 1."""
        return None

    # -- the client half ----------------------------------------------------------------------------------------------

    def receive(self, client: Client, download: Message) -> Weights:
        received = super().receive(client, download)
        if "trained" not in client.state:
            return received
        own = client.state["mask"]
        if self.options.merge_mask == "server":
            own = bits_to_mask(download.mask, len(received.params)).to(received.params.device)
        return received.replace(params=choose(own, client.state["trained"], received.params))

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        mask = client.state.get("mask", torch.zeros_like(received.params, dtype=torch.bool))
        trained = self._train(client, received, mask)
        delta = received.params - trained.params
        scores = self._scores(client, received, trained, delta, download)
        mask = self.grown(mask, delta.abs())
        client.state |= {"trained": trained.params, "mask": mask}
        if self.options.loo_update == "previous":
            client.state["delta"] = delta
        return self._pack(client, trained, mask, scores)

    def _pack(self, client: Client, trained: Weights, mask: Tensor, scores: dict[str, float]) -> Upload:
        """The shared values, the mask and the score."""
        score = torch.tensor(sum(scores.values()), dtype=torch.float64)
        personal = int(mask.sum())
        traces = {"mask_share": personal / len(mask), **scores}
        upload = self.upload(client, trained, traces=traces, mask=mask_to_bits(mask), score=score)
        upload.tensors["params"] = without(trained.params, mask)  # only the others are sent, and counted
        upload.charge = upload.wire_bytes() - trained.params.element_size() * personal
        return upload

    def _train(self, client: Client, received: Weights, mask: Tensor) -> Weights:
        """The personal phase, the shared phase, and the model of their parts (Algorithm 2)."""
        pairs = client.state.get("moments", {}) if self.options.keep_moments else {}
        steps, ends, model = {}, {}, received
        for phase, part in (("personal", mask), ("shared", ~mask)):
            if self.options.phase_coupling == "parallel":
                model = model.replace(params=received.params)
            if self.options.moments == "shared" or holds_one(part):
                model, steps[phase] = self._phase(client, model, phase, part, self._pair(pairs, phase, model.params))
            ends[phase] = model.params
        for phase in ends.keys() - steps.keys():  # a phase without parameters: only its counter goes on
            self._pair(pairs, phase, model.params)["steps"] += max(steps.values())
        if self.options.keep_moments and self.options.moments != "none":
            client.state["moments"] = pairs
        return model.replace(params=choose(mask, ends["personal"], ends["shared"]))

    def _pair(self, pairs: dict[str, Any], phase: str, like: Tensor) -> dict[str, Any]:
        """The moments of a phase and how often they were updated."""
        if self.options.moments == "none":
            return {"steps": 0}
        name = "both" if self.options.moments == "shared" else phase
        return pairs.setdefault(name, {"u": torch.zeros_like(like), "v": torch.zeros_like(like), "steps": 0})

    def _phase(
        self, client: Client, start: Weights, phase: str, part: Tensor, pair: dict[str, Any]
    ) -> tuple[Weights, int]:
        """Train a part `[N]` of the parameters, with the moments of `pair`; the model and the number of steps."""
        options, decay, learner = self.options, self.context.train.weight_decay, client.learner
        fit, before = partial(learner.fit, start, client.train, purpose=phase), learner.ledger.steps
        # Eq. 4 and 5 with beta2 in both are Adam's.
        adam = partial(torch.optim.Adam, betas=(options.beta1, options.beta2), eps=options.eps)
        state = {"part": part.to(start.params.dtype)}
        masked: dict[str, Any] = {"gradient": partial(masked_gradient, decay=decay), "state": state}
        if options.moments == "none":
            model = fit(optimizer=torch.optim.SGD, **masked)
            return model, learner.ledger.steps - before
        counter = start.params.new_tensor(pair["steps"], dtype=torch.float32)  # fused steps want it on the device
        held = {"exp_avg": pair["u"], "exp_avg_sq": pair["v"], "step": counter}
        memory = {"optimizer": held}
        if options.moments == "mask_aware":
            held["exp_avg"] = pair["u"] * state["part"]  # the others only lose weight, below
            model = fit(optimizer=adam, memory=memory, **masked)
        else:
            bits = bitmask(part, start.params)

            def hold(*_: Any) -> None:
                choose(bits, learner.w, start.params, in_place=True)

            model = fit(optimizer=partial(adam, weight_decay=decay), memory=memory, after_step=hold)
        steps, after = learner.ledger.steps - before, memory["optimizer"]
        if options.moments == "mask_aware":
            after["exp_avg"].add_(pair["u"] * (1 - state["part"]), alpha=options.beta1**steps)
        pair |= {"u": after["exp_avg"], "v": after["exp_avg_sq"], "steps": pair["steps"] + steps}
        return model, steps

    def grown(self, mask: Tensor, change: Tensor) -> Tensor:
        """The next mask `[N]`, given how far every parameter moved (eq. 6 and 7)."""
        selected = floor_of(self.options.personalization_rate, len(mask))
        room = floor_of(self.options.personalization_budget, len(mask)) - int(mask.sum())
        among = None if self.options.select_from == "all" else ~mask
        candidates = largest(change, selected, among) & ~mask
        if room < int(candidates.sum()):
            candidates = largest(change, room, candidates)
        return mask | candidates

    def _scores(
        self, client: Client, received: Weights, trained: Weights, delta: Tensor, download: Message
    ) -> dict[str, float]:
        """The contribution scores that are switched on (eq. 8 and 9)."""
        share, scores = float(download.alpha), {}
        if self.options.grad_score:
            previous = self.options.loo_update == "previous"
            update = client.state.get("delta", torch.zeros_like(delta)) if previous else delta
            steps = (
                (d, leave_out(old.double() - new.double(), u, share))
                for d, u, old, new in pieces(delta, update, download.previous, download.params)
            )
            scores["score_gradient"] = deviation(steps) if share < ALL else 1.0
        if self.options.pred_score:
            entered = client.state.get("trained", client.initial.params)
            own = entered if self.options.loo_model == "uploaded" else received.params
            others = download.params
            if share < ALL:
                others = torch.cat([leave_out(a, b, share).to(delta.dtype) for a, b in pieces(others, own)])
            scores["score_prediction"] = client.learner.loss(trained.replace(params=others), client.train)
        return scores

    # -- the server half ----------------------------------------------------------------------------------------------

    def open(self, server: Server) -> None:
        super().open(server)
        server.previous, server.live = server.params, 1.0
        server.mask = mask_to_bits(torch.zeros_like(server.params, dtype=torch.bool))
        server.alphas, server.shares = dict.fromkeys(range(self.context.clients), 1 / self.context.clients), {}

    def download(self, server: Server, client: int) -> Message:
        message = super().download(server, client)
        message.tensors["mask"] = server.mask
        message.tensors["alpha"] = torch.tensor(server.alphas.get(client, 0.0), dtype=torch.float64)
        if self.options.grad_score:
            message.tensors["previous"] = server.previous
            if client in server.alphas:  # it holds this vector since the last round
                message.bits = {**self.wire, "previous": 0}
        return message

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        """Weights by contribution (eq. 10); uniform where no score says anything."""
        scores = [float(u.score) for u in uploads]
        return normalised(scores if sum(scores) > 0 else [1.0] * len(scores))

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        before, size = server.params, len(server.params)
        super().aggregate(server, uploads)
        for upload in uploads:
            server.mask = server.mask | upload.mask
        if self.options.server_rule == "or_mask":
            live = ~bits_to_mask(server.mask, size)
            params = choose(live, server.params, before)
        else:
            sent = [~bits_to_mask(u.mask, size) for u in uploads]
            live = reduce(torch.logical_or, sent)
            params = masked_mean([u.params for u in uploads], sent, self.weights(uploads), before)
        server.previous, server.params, server.live = before, params, float(live.sum()) / size
        server.alphas = dict(zip([u.client for u in uploads], self.weights(uploads), strict=True))
        server.shares = self._shares(torch.stack([u.mask for u in uploads]))

    def _shares(self, masks: Tensor) -> dict[str, float]:
        """Personal share of every layer, mean over the clients."""
        counts = mask_counts(masks, self.context.layout.size)
        return {
            s.name: float(counts[s.start : s.stop].sum()) / (s.size * len(masks)) for s in self.context.layout.layers()
        }

    def traces(self, server: Server) -> dict[tuple[int, str], float]:
        found = {(-1, f"mask_share/{layer}"): share for layer, share in server.shares.items()}
        found |= {(client, "alpha"): alpha for client, alpha in server.alphas.items() if client in server.participants}
        return {(-1, "live_share"): server.live, **found}


def masked_gradient(g: Tensor, w: Tensor, s: Any, decay: float = 0.0) -> None:
    """The gradient of a part, with weight decay; `[N]`, or a stack of clients `[K, N]`."""
    if decay:
        g.add_(w, alpha=decay)
    g.mul_(s.part)


def floor_of(share: float, size: int) -> int:
    """floor(share * size), where 0.29 * 100 is 29."""
    return int(share * size + 1e-9)


def pieces(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Vectors `[N]` cut alike, into pieces whose float64 copies stay in a core's cache."""
    return zip(*(vector.split(2**15) for vector in vectors), strict=True)


def leave_out(whole: Tensor, own: Tensor, share: float) -> Tensor:
    """Float64 `[N]`: a weighted mean without one vector that entered it with weight `share` < 1."""
    return whole.double().sub(own.double(), alpha=share).div_(1 - share)


def deviation(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """1 - cosine, in [0, 2], of two vectors given as pairs of pieces; 1 where a vector is 0 (eq. 8)."""
    doubled = ((update.double(), others) for update, others in pairs)
    products = [torch.stack([u @ o, u @ u, o @ o]) for u, o in doubled]
    product, *squares = torch.stack(products).sum(0).tolist()
    norms = sqrt(squares[0]) * sqrt(squares[1])
    cosine = product / norms if norms else 0.0
    return 1 - min(1.0, max(-1.0, cosine))
