"""CO-PFL, Contribution-Oriented Personalized Federated Learning (Xing, Dong, Fan, Zeng, Leung, Deen, Hu; 2025).

Private: a growing mask of personal parameters and their values, two pairs of Adam moments, the float buffers. Up: the
other parameters, the mask and one score; down: the server's vector and mask, the client's last weight, and for the
prediction score the summed weight of those who sent a parameter (literal reading: none of that, but the previous step
for clients that missed it). Two versions of the paper: V1, an anonymous submission, and V2, a journal's.

Where we decide:
- A parameter is averaged over the clients for which it is not personal (`server_rule=per_index`), a client keeps its
  personal ones (`merge_mask=client`), and its update is compared with the others' in the same round, over what it sends
  and received from the server (`loo_update=same_round`): the working reading, in which over 95 % of parameters move.
  The paper does not say which mask merges.
- The literal reading is `server_rule=or_mask merge_mask=server loo_update=current`: what is personal for anybody never
  moves again at the server, and the last step of the server stands for the others. With ten clients of two digits each,
  less than a tenth moves from round 2 on, 4 % at the end; all weights are alike, and the run is local training.
- The prediction score is the loss of the server's model without the client. With `per_index` it is taken out of the
  parameters that it sent alone, with the weight that it had there; where nobody else sent one, the mean stays. In the
  literal reading it is taken out of all of them (`loo_model`, `loo_update`), also out of those that it never sent.
- The loss is on training images, as eq. 9 says. V2's introduction speaks of a held-out part: `score_data=held_out` sets
  `val_fraction` of a client's training images aside, drawn once from its stream `validation`, and does not train on it.
- Eq. 4b averages squares with beta1 while eq. 5a corrects with beta2, and 5a divides by 0 at the first step: beta2 in
  both, and moments are updated before they are used.
- Algorithm 2 starts both phases from the received model, the text calls them alternating (`phase_coupling`).
- Masks of this round apply at once, unlike FedSelect's.
- The budget is a share of all parameters and is filled with the largest changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedbench.aggregation.leave_one_out import (
    contribution_weights,
    cut_alike,
    deviation,
    deviations,
    leave_out,
    leave_out_sent,
)
from fedbench.aggregation.means import mask_weights, masked_mean
from fedbench.aggregation.packed import bits_to_mask, mask_counts, mask_to_bits
from fedbench.aggregation.ranks import floored_share, largest
from fedbench.config import TrainConfig
from fedbench.engine.fit import Step
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method
from fedbench.methods.client import Client, PrivateState, held_count
from fedbench.methods.messages import Message, Upload, encoded, sparse, zero_bytes
from fedbench.methods.server import UNSET, ServerState
from fedbench.module.layout import shares_by_tensor
from fedbench.module.masks import bitmask, choose, holds_one, without
from fedbench.module.weights import Weights
from fedbench.results.trace import mask_trace

LEAST_SHARED = 0.1
"""Least share of parameters that still move at the server; a run warns below it."""

READINGS = {
    "literal": {"server_rule": "or_mask", "merge_mask": "server", "loo_update": "current"},
    "working": {"server_rule": "per_index", "merge_mask": "client", "loo_update": "same_round"},
}
"""The readings of the paper, the second of which is the default."""

ALONE = 1 - 1e-12
"""Weight in the last mean from which a client was alone in it."""

Pairs = dict[str, dict[str, Any]]
"""Means of gradients `u` and of their squares `v` `[N]`, and the number of updates, by phase (or "both")."""


class CoPFL(Method["CoPFL.Options", "CoPFL.State", "CoPFL.Server"]):
    """Personal parameters by change, trained with separate moments; the others weighted by contribution."""

    about = About(
        "parameters that change most turn private, the others are weighted by contribution",
        "parameter decoupling",
        "Xing et al., preprint",
        2025,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {
        "fedavg:weighting=uniform,buffers=private": {
            "method.moments": "none",
            "method.grad_score": False,
            "method.pred_score": False,
            "method.personalization_rate": 0,
            "model": "mlp",
            "train.batch_size": "full",
            "train.shuffle": False,
            "train.momentum": 0,
        },
        "local": {
            "method.moments": "none",
            "method.grad_score": False,
            "method.pred_score": False,
            "method.personalization_rate": 1,
            "method.personalization_budget": 1,
            "model": "mlp",
            "train.batch_size": "full",
            "train.shuffle": False,
            "train.momentum": 0,
        },
    }
    traces = (mask_trace("personal_share", "private share"),)
    needs = frozenset({"classes"})
    also_sends = "their mask and their score"

    class Options(Method.Options):
        personalization_rate: float = Field(
            0.25,
            ge=0,
            le=1,
            json_schema_extra={"symbol": "p"},
            description="share of all parameters that a client may select in a round, p, eq. 6 and 7",
        )
        personalization_budget: float = Field(
            0.5,
            ge=0,
            le=1,
            json_schema_extra={"symbol": "gamma"},
            description="largest share of all parameters that become personal, gamma, eq. 7",
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
            "per_index", description="the server updates entries personal for nobody, or averages those that share"
        )
        merge_mask: Literal["server", "client"] = Field(
            "client", description="a client keeps its values where anybody's mask is 1, or its own"
        )
        select_from: Literal["all", "unmasked"] = Field(
            "all", description="the selected share is of all parameters by change, or of those not yet personal"
        )
        loo_update: Literal["current", "previous", "same_round"] = Field(
            "same_round",
            description="the others' step, eq. 8: the server's last one without this round's update or without the "
            "client's one before, or the mean update of the others in the same round",
        )
        loo_model: Literal["uploaded", "received"] = Field(
            "uploaded", description="model taken out of the server's: the one last uploaded, or the one received now"
        )
        score_data: Literal["train", "held_out"] = Field(
            "train", description="where the loss of eq. 9 is taken: all training samples, or those held out"
        )
        val_fraction: float = Field(0.2, gt=0, lt=1, description="share of samples held out with score_data=held_out")
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
    optimizer = "own"

    @dataclass
    class State(PrivateState):
        """mask: the personal parameters, with values in `trained`; moments: by phase; delta: the last change."""

        trained: Tensor | None = None
        mask: Tensor | None = None
        moments: Pairs = field(default_factory=dict)
        delta: Tensor | None = None

    @dataclass
    class Server(ServerState):
        """mask: parameters personal for anybody, packed; previous: last vector; alphas: weights in the last mean.

        sharers: the summed weight of those who sent a parameter to the last mean `[N]`, for the prediction score.
        """

        mask: Tensor = UNSET
        previous: Tensor = UNSET
        sharers: Tensor = UNSET
        alphas: dict[int, float] = field(default_factory=dict)

    @classmethod
    def decisions(cls, options: Options) -> list[str]:
        """The reading first."""
        taken = {key: getattr(options, key) for key in READINGS["literal"]}
        name = next((name for name, reading in READINGS.items() if reading == taken), "neither literal nor working")
        return [f"Reading: {name} ({' '.join(f'{k}={v}' for k, v in taken.items())}).", *super().decisions(options)]

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return options.moments == "shared"

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        return 2 * super().steps(options, train, samples - held_out_count(options, samples), public)

    def check(self) -> Iterator[str]:
        self.refuse_changed_uploads()
        train, options = self.context.train, self.options
        if options.score_data == "held_out" and not options.pred_score:
            raise ConfigError(
                "method.score_data = held_out: only the prediction score uses it, set method.pred_score true"
            )
        if not (train.steps or train.epochs):
            raise ConfigError("train.epochs = 0: co-pfl trains at least 1 epoch in each of its two phases")
        if train.optimizer != "sgd" or train.momentum or train.keep_optimizer:
            yield (
                "co-pfl: makes its own steps (method.moments): train.optimizer, train.momentum and "
                "train.keep_optimizer have no effect"
            )

    def receive(self, client: Client[State]) -> Weights:
        received, state = super().receive(client), client.state
        if state.trained is None or state.mask is None:
            return received
        mask = state.mask
        if self.options.merge_mask == "server":
            mask = bits_to_mask(client.message.mask, len(received.params)).to(received.params.device)
        return received.replace(params=choose(mask, state.trained, received.params))

    def train(self, client: Client[State], received: Weights) -> Upload:
        state = client.state
        mask = torch.zeros_like(received.params, dtype=torch.bool) if state.mask is None else state.mask
        kept, scored = self.parts(client)
        trained = self._in_phases(client, received, mask, kept)
        delta = received.params - trained.params
        scores = self._scores(client, received, trained, delta, scored)
        mask = self.grow_mask(mask, delta.abs())
        state.trained, state.mask = trained.params, mask
        if self.options.loo_update == "previous":
            state.delta = delta
        personal = int(mask.sum())
        return self.upload(
            client,
            trained,
            traces={"personal_share": personal / len(mask), **scores},
            params=sparse(without(trained.params, mask), len(mask) - personal),
            mask=mask_to_bits(mask),
            score=encoded(torch.tensor(sum(scores.values()), dtype=torch.float64), bits=32 if scores else 0),
        )

    def reference(self, message: Message, upload: Upload) -> Tensor:
        """The received parameters, and 0 where the client sends nothing."""
        return without(message.params, bits_to_mask(upload.mask, len(message.params)).to(message.params.device))

    def parts(self, client: Client[State]) -> tuple[Any, Any]:
        """The images to train on, and those on which the prediction score is taken."""
        if self.options.score_data == "train" or client.samples == 1:
            return client.train, client.train
        return client.split(self.options.val_fraction, "validation")

    def _in_phases(self, client: Client[State], received: Weights, mask: Tensor, data: Any) -> Weights:
        """The personal phase, the shared phase, and the model of their parts (Algorithm 2)."""
        options, pairs = self.options, client.state.moments if self.options.keep_moments else {}
        steps, ends, model = {}, {}, received
        for phase, part in (("personal", mask), ("shared", ~mask)):
            if options.phase_coupling == "parallel":
                model = model.replace(params=received.params)
            if options.moments == "shared" or holds_one(part):
                model, steps[phase] = train_part(client, model, data, phase, part, options, pairs)
            ends[phase] = model.params
        for phase in ends.keys() - steps.keys():  # a phase without parameters: only its counter advances
            if options.moments != "none":
                pairs.setdefault(phase, new_moments(model.params))["steps"] += max(steps.values())
        return model.replace(params=choose(mask, ends["personal"], ends["shared"]))

    def grow_mask(self, mask: Tensor, change: Tensor) -> Tensor:
        """The next mask `[N]`, given how far every parameter moved (eq. 6 and 7)."""
        selected = floored_share(self.options.personalization_rate, len(mask))
        room = floored_share(self.options.personalization_budget, len(mask)) - int(mask.sum())
        among = None if self.options.select_from == "all" else ~mask
        candidates = largest(change, selected, among) & ~mask
        if room < int(candidates.sum()):
            candidates = largest(change, room, candidates)
        return mask | candidates

    def _scores(
        self, client: Client[State], received: Weights, trained: Weights, delta: Tensor, scored: Any
    ) -> dict[str, float]:
        """The enabled contribution scores that the client computes (eq. 8 and 9). scored: the images of eq. 9."""
        message, share, scores = client.message, float(client.message.alpha), {}
        if self.options.grad_score and not self.scores_steps:
            update = delta
            if self.options.loo_update == "previous":
                update = torch.zeros_like(delta) if client.state.delta is None else client.state.delta
            steps = (
                (d, leave_out(old.double() - new.double(), u, share))
                for d, u, old, new in cut_alike(delta, update, message.previous, message.params)
            )
            scores["score_gradient"] = deviation(steps) if share < ALONE else 1.0
        if self.options.pred_score:
            others = self._others(client, received)
            scores["score_prediction"] = client.learner.loss(trained.replace(params=others), scored)
        return scores

    def _others(self, client: Client[State], received: Weights) -> Tensor:
        """The server's vector `[N]` without the client (eq. 9)."""
        message, state, share = client.message, client.state, float(client.message.alpha)
        entered = client.initial.params if state.trained is None else state.trained
        params = entered if self.options.loo_model == "uploaded" else received.params
        if self.weighs_entries:
            sent = torch.ones_like(params, dtype=torch.bool) if state.mask is None else ~state.mask
            pieces = (
                leave_out_sent(w, o, share, s, m)
                for w, o, s, m in cut_alike(message.params, params, message.sharers, sent)
            )
        elif share < ALONE:
            pieces = (leave_out(w, o, share) for w, o in cut_alike(message.params, params))
        else:
            return message.params
        return torch.cat([piece.to(params.dtype) for piece in pieces])

    @property
    def weighs_entries(self) -> bool:
        """Whether a prediction score needs the weights of every entry, because not all clients are in its mean."""
        return self.options.pred_score and self.options.server_rule == "per_index"

    @property
    def scores_steps(self) -> bool:
        """Whether the server scores updates, all of which it has."""
        return self.options.grad_score and self.options.loo_update == "same_round"

    def start(self, initial: Weights) -> Server:
        server = super().start(initial)
        server.previous = server.params
        server.mask = mask_to_bits(torch.zeros_like(server.params, dtype=torch.bool))
        if self.weighs_entries:
            server.sharers = torch.ones_like(server.params)
        server.alphas = dict.fromkeys(range(self.context.clients), 1 / self.context.clients)
        return server

    def send(self, server: Server, client: int) -> Message:
        alpha = torch.tensor(server.alphas.get(client, 0.0), dtype=torch.float64)
        message = super().send(server, client).add(mask=server.mask, alpha=encoded(alpha, bits=32))
        if self.weighs_entries:
            message.add(sharers=server.sharers)
        if self.options.grad_score and not self.scores_steps:  # a client of the last mean has the vector before it
            message.add(previous=zero_bytes(server.previous) if client in server.alphas else server.previous)
        return message

    def global_model(self, server: Server, initial: Weights) -> None:
        """None: the server's vector is frozen where anybody's mask is 1, and no client has it."""

    def shared_part(self, server: Server, initial: Weights) -> Weights:
        """The server's vector; with `server_rule=or_mask` its frozen entries are as old as the first mask there."""
        return self.whole_model(server, initial)

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        """Weights by contribution (eq. 10); uniform without an informative score."""
        return contribution_weights([float(u.score) for u in uploads])

    def aggregate(self, server: Server, uploads: list[Upload]) -> None:
        before, size = server.params, len(server.params)
        per_index = self.options.server_rule == "per_index"
        sent = [~bits_to_mask(u.mask, size) for u in uploads] if per_index or self.scores_steps else []
        if self.scores_steps:
            self._score_steps(server, uploads, sent)
        super().aggregate(server, uploads)
        for upload in uploads:
            server.mask = server.mask | upload.mask
        if per_index:
            live = reduce(torch.logical_or, sent)
            params = masked_mean([u.params for u in uploads], sent, self.weights(uploads), before)
            if self.weighs_entries:
                server.sharers = mask_weights(sent, self.weights(uploads), before)
        else:
            live = ~bits_to_mask(server.mask, size)
            params = choose(live, server.params, before)
        server.previous, server.params = before, params
        server.alphas = dict(zip([u.client for u in uploads], self.weights(uploads), strict=True))
        self._trace(server, float(live.sum()) / size, torch.stack([u.mask for u in uploads]))

    def _score_steps(self, server: Server, uploads: list[Upload], sent: list[Tensor]) -> None:
        """Adds to every score the deviation of the update from the others', over entries from the server."""
        if self.options.merge_mask == "server":
            taken = ~bits_to_mask(server.mask, len(server.params))
            sent = [mask & taken for mask in sent]
        scores = deviations(server.params, [u.params for u in uploads], sent)
        for upload, score in zip(uploads, scores, strict=True):
            upload.tensors["score"] = upload.score + score
            server.trace("score_gradient", score, upload.client)

    def _trace(self, server: Server, live: float, masks: Tensor) -> None:
        """Traces the moving share, the personal share per layer (mean over the clients), and the weights."""
        server.trace("live_share", live)
        if server.traced:
            counts = mask_counts(masks, self.context.layout.size)
            for name, share in shares_by_tensor(
                "personal_share", self.context.layout.params, counts, len(masks)
            ).items():
                server.trace(name, share)
        for client, alpha in server.alphas.items():
            server.trace("alpha", alpha, client)
        if live < LEAST_SHARED:
            server.mark_degenerate(
                f"less than {LEAST_SHARED:.0%} of the parameters still move at the server, the rest is "
                "personal for somebody: from here on it is nearly local training; take the working reading "
                "(`fedbench methods co-pfl`), or lower method.personalization_budget, to share more"
            )


def held_out_count(options: CoPFL.Options, samples: int) -> int:
    """Training images that a client does not train on."""
    return held_count(samples, options.val_fraction) if options.score_data == "held_out" and samples > 1 else 0


def train_part(
    client: Client, start: Weights, data: Any, phase: str, part: Tensor, options: CoPFL.Options, pairs: Pairs
) -> tuple[Weights, int]:
    """Trains a part `[N]` of the parameters with its moments in `pairs`; returns the model and the steps."""
    decay, ledger = client.learner.train.weight_decay, client.learner.ledger
    before, dtype = ledger.steps, start.params.dtype
    edit = partial(masked_gradient, decay=decay)
    if options.moments == "none":
        step = Step(edit, rule=torch.optim.SGD, memory={}, part=part.to(dtype))
        return client.fit(start, data, phase, step=step), ledger.steps - before
    adam = partial(torch.optim.Adam, betas=(options.beta1, options.beta2), eps=options.eps)
    pair = pairs.setdefault("both" if options.moments == "shared" else phase, new_moments(start.params))
    counter = start.params.new_tensor(pair["steps"], dtype=torch.float32)  # fused steps want it on the device
    memory: dict[str, Any] = {"optimizer": {"exp_avg": pair["u"], "exp_avg_sq": pair["v"], "step": counter}}
    if options.moments == "mask_aware":
        inside = part.to(dtype)
        memory["optimizer"]["exp_avg"] = pair["u"] * inside  # the others only lose weight, below
        model = client.fit(start, data, phase, step=Step(edit, rule=adam, memory=memory, part=inside))
    else:
        bits = bitmask(part, start.params)
        step = Step(rule=partial(adam, weight_decay=decay), memory=memory)
        with client.training(start, data, phase, step=step) as training:
            for batch in training:
                training.step(batch)
                choose(bits, training.w, start.params, in_place=True)
        model = training.weights
    steps, after = ledger.steps - before, memory["optimizer"]
    if options.moments == "mask_aware":
        after["exp_avg"].add_(pair["u"] * (1 - inside), alpha=options.beta1**steps)
    pair.update({"u": after["exp_avg"], "v": after["exp_avg_sq"], "steps": pair["steps"] + steps})
    return model, steps


def new_moments(like: Tensor) -> dict[str, Any]:
    """The initial moments."""
    return {"u": torch.zeros_like(like), "v": torch.zeros_like(like), "steps": 0}


def masked_gradient(g: Tensor, w: Tensor, s: Any, decay: float = 0.0) -> None:
    """The gradient of a part, with weight decay; `[N]`, or rows of clients `[K, N]`."""
    if decay:
        g.add_(w, alpha=decay)
    g.mul_(s.part)
