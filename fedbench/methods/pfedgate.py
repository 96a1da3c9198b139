"""pFedGate ("Efficient Personalized Federated Learning via Sparse Model-Adaptation", Chen et al., ICML 2023).

Private: a gate, a small layer on the input that gives every block of the shared model a factor in (0, 1) for the batch
at hand; below sparsity 1 blocks with small factors are left out. Up and down: the shared model, without the factors.

Where we decide:
- A block is a parameter tensor or one of its `blocks_per_tensor` pieces. Gate epoch and model epoch take turns
  (`alternation=epoch`, the default of the authors' code); their published runs train both at once (`joint`).
- One factor scales and ranks. Which blocks stay: greedily by the exact factor under the size budget. Their code rounds
  factors to tenths; its other mode zeroes parts of blocks at sparsity 1 too.
- Their code decays the gate's weights and keeps both optimisers across rounds, and applies ReLU to the class scores of
  the adapted model: not followed.
- A block that no model step of the round kept stays as received and is not sent, so that weight decay does not move it.
- Factors of evaluation come from each evaluation batch, as in paper and code, so that the batch size is part of the
  protocol (`gate_eval=batch`), or once from the client's training images (`client`).
- `gate=false` is fedavg, without clipping.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from math import ceil, prod
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedbench.config import TrainConfig
from fedbench.engine.fit import Amount, Batches, OneBatch, Step
from fedbench.engine.loop import Training
from fedbench.engine.losses import task_loss
from fedbench.errors import ConfigError
from fedbench.methods.base import About, Method, Point
from fedbench.methods.client import Client, Predictor, PrivateState
from fedbench.methods.messages import Encoded, Upload
from fedbench.methods.server import ServerState
from fedbench.module import seeds
from fedbench.module.blocks import Blocks, select_blocks
from fedbench.module.layout import shares_by_tensor
from fedbench.module.masks import choose
from fedbench.module.weights import Weights
from fedbench.results.trace import mask_trace

KeptShare = Annotated[float, Field(gt=0, le=1)]


class PFedGate(Method["PFedGate.Options", "PFedGate.State"]):
    """A shared model whose blocks a private gate scales and drops for every batch."""

    about = About(
        "a private gate scales, and drops, blocks of a shared model for every batch",
        "model adaptation",
        "Chen et al., ICML",
        2023,
    )
    REDUCES_TO: ClassVar[dict[str, Any]] = {"fedavg": {"method.gate": False}}
    traces = (mask_trace("active_share", "share in use"),)

    class Options(Method.Options):
        sparsity: KeptShare | list[KeptShare] = Field(
            1.0, description="share of the elements that are kept in a step, s; a list has one for each client"
        )
        blocks_per_tensor: int = Field(1, ge=1, description="pieces that a parameter tensor is cut into")
        lr_gate: float | None = Field(
            None,
            ge=0,
            description="learning rate of the gate; none: that of the model",
            json_schema_extra={"rate": "own"},
        )
        clip: float | None = Field(10.0, gt=0, description="largest norm of a gradient, of gate and model each; none")
        gate_norm: Literal["switch", "none"] = Field(
            "switch", description="normalisation of images before the gate: switchable, or none"
        )
        gate_eval: Literal["batch", "client"] = Field(
            "batch", description="factors when evaluating: of each evaluation batch, or of the client's samples"
        )
        alternation: Literal["epoch", "joint"] = Field(
            "epoch", description="a gate epoch before each model epoch, or one pass that trains both"
        )
        gate: bool = Field(True, description="false: every factor is 1, which is fedavg")

    @dataclass
    class State(PrivateState):
        """gate: the weights of the client's gate."""

        gate: dict[str, Tensor] = field(default_factory=dict)

    train_defaults: ClassVar[dict[str, Any]] = {"lr": 0.1}

    @classmethod
    def makes_steps(cls, options: Options) -> bool:
        return options.gate

    @classmethod
    def steps(cls, options: Options, train: TrainConfig, samples: int, public: int) -> int:
        if not options.gate:
            return super().steps(options, train, samples, public)
        return fit_amount(samples).steps_on(samples, train) * (2 if options.alternation == "epoch" else 1)

    def check(self) -> Iterable[str]:
        options, clients = self.options, self.context.clients
        listed = options.sparsity if isinstance(options.sparsity, list) else [options.sparsity] * clients
        if isinstance(options.sparsity, list):
            self.refuse_newcomers("method.sparsity lists one share for each client")
        if len(listed) != clients:
            raise ConfigError(f"method.sparsity lists {len(listed)} shares for {clients} clients: one for each")
        if min(listed) < 1:
            self.refuse_changed_uploads()
        if min(listed) < 1 and options.blocks_per_tensor < 2:
            raise ConfigError(
                "method.sparsity < 1 with method.blocks_per_tensor = 1 could drop a whole layer: cut tensors into 2 "
                "blocks or more"
            )
        if min(listed) < 1 and not options.gate:
            raise ConfigError("method.sparsity < 1 with method.gate = false: no gate selects the blocks to keep")
        if options.gate and self.context.train.batch_size == 1:
            raise ConfigError("train.batch_size = 1: the gate has BatchNorm and trains on 2 samples or more at a time")
        if options.gate and self.context.samples in ("token", "fields"):
            raise ConfigError(
                "method pfedgate needs real-valued samples, but those of the data are tokens: choose another method"
            )
        shape, is_switch = self.context.sample_shape, options.gate and options.gate_norm == "switch"
        if is_switch and shape and (len(shape) != 3 or prod(shape[1:]) < 2):
            raise ConfigError(
                f"method.gate_norm = 'switch' normalises images, but samples have shape {list(shape)}: set it to none"
            )
        return ()

    def global_model(self, server: ServerState, initial: Weights) -> Weights | None:
        """None with a gate, because then nobody predicts by the shared model."""
        return None if self.options.gate else super().global_model(server, initial)

    def shared_part(self, server: ServerState, initial: Weights) -> Weights:
        """The shared model, of which every gate leaves a part."""
        return self.whole_model(server, initial)

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks.of(self.context.layout, self.options.blocks_per_tensor)

    def begin(self, client: Client[State]) -> None:
        if self.options.gate:
            client.state.gate = copy_of_state(self.gate(client))

    def gate(self, client: Client[State]) -> "Gate":
        """The client's gate in evaluation mode: the kept one, or an initial one from its own stream."""
        start = client.initial.params
        shape = client.train.batch(torch.arange(0, device=start.device))[0].shape[1:]
        switch = self.options.gate_norm == "switch"
        with seeds.preserved_torch_stream():
            seeds.seed_torch(seeds.derive(client.seed, client.id, "gate"))
            gate = Gate(shape, len(self.blocks.sizes), switch).to(start)
        if client.state.gate:
            gate.load_state_dict(client.state.gate)
        return gate.eval()

    def sparsity(self, client: Client[State]) -> float:
        given = self.options.sparsity
        return given[client.id] if isinstance(given, list) else given

    def keep(self, client: Client[State], factors: Tensor) -> Tensor:
        """`[L]`: 1 for kept blocks, 0 for the others; without gradient."""
        share, blocks = self.sparsity(client), self.blocks
        if share == 1:
            return torch.ones_like(factors)
        return factors.new_tensor(select_blocks(factors.tolist(), blocks.sizes, blocks.linear, blocks.first, share))

    def train(self, client: Client[State], received: Weights) -> Upload:
        if not self.options.gate:
            return super().train(client, received)
        train, amount = self.context.train, fit_amount(client.samples)
        orders = client.learner.orders(client.train, "gate", train.batch_size, amount)
        gate = GateTraining(client, self.gate(client), self.blocks, partial(self.keep, client), self.options)
        with client.training(received, client.train, amount=amount, step=Step(through_gate, gate=gate)) as training:
            if self.options.alternation == "joint":
                for batch in training:
                    gate.step_model(training, batch)
            elif train.steps is None:
                for batches in training.epochs():
                    gate.steps(training, next(orders))
                    for batch in batches:
                        gate.step_model(training, batch)
            else:
                each = chain.from_iterable(orders)
                for batch in training:
                    gate.steps(training, [next(each)])
                    gate.step_model(training, batch)
        gate.finish()
        client.state.gate = copy_of_state(gate.gate)
        return self._make_upload(client, received, training.weights, gate)

    def _make_upload(self, client: Client[State], received: Weights, trained: Weights, gate: "GateTraining") -> Upload:
        """The upload: of a sparse model the blocks kept in some step; the others stay as received."""
        traces = {"gate": float(torch.stack(gate.means).mean())} if gate.means else {}
        if self.sparsity(client) == 1:
            return self.upload(client, trained, traces=traces | {"active_share": 1.0})
        kept = self.blocks.spread(gate.kept)  # [N]
        params = choose(kept, trained.params, received.params)
        size = params.element_size() * int(kept.sum()) + ceil(len(gate.kept) / 8)
        traces["active_share"] = float(kept.sum()) / len(kept)
        traces |= shares_by_tensor("active_share", self.context.layout.params, kept)
        return self.upload(client, trained.replace(params=params), traces=traces, params=Encoded(params, size))

    def personal(self, client: Client[State], model: Weights, point: Point) -> Weights | Predictor:
        """The model adapted by the client's gate to each evaluation batch, or to its training images."""
        if not self.options.gate:
            return model
        gate = self.gate(client)
        if self.options.gate_eval == "batch":
            return Predictor(partial(self.scores, client, model, gate))
        totals = [len(batch) * gate(batch.x).detach() for batch in evaluation_batches(client.train, client)]
        return self.adapt(client, model, torch.stack(totals).sum(0) / client.samples)

    def scores(self, client: Client[State], model: Weights, gate: "Gate", data: Batches) -> Tensor:
        """Class scores `[n, C]` of the model under a gate."""
        scores = []
        for batch in evaluation_batches(data, client):
            adapted = self.adapt(client, model, gate(batch.x).detach())
            scores.append(client.learner.logits(adapted, batch))
        return torch.cat(scores)

    def adapt(self, client: Client[State], model: Weights, factors: Tensor) -> Weights:
        return model.replace(params=self.blocks.scale(model.params, factors * self.keep(client, factors)))


def fit_amount(samples: int) -> Amount:
    """A fit without batches of one image, which the gate's BatchNorm cannot use."""
    return Amount(min_batch=min(2, samples))


def evaluation_batches(data: Batches, client: Client) -> Iterator[OneBatch]:
    """All data, in evaluation batches."""
    for index in torch.arange(len(data), device=client.initial.params.device).split(
        client.learner.evaluator.batch_size
    ):
        yield OneBatch(*data.batch(index), data.key)


class SwitchNorm(nn.Module):
    """Switchable normalisation of images `[n, c, h, w]`: learned mixtures of instance, layer and batch statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mean_mix, self.var_mix = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = x.mean((2, 3)), x.var((2, 3))  # [n, c]
        square = var + mean.square()
        layer_mean = mean.mean(1, keepdim=True)
        layer_var = square.mean(1, keepdim=True) - layer_mean.square()
        batch_mean, batch_var = self.running_mean, self.running_var
        if self.training:
            batch_mean = mean.mean(0)
            batch_var = square.mean(0) - batch_mean.square()
            self.running_mean.lerp_(batch_mean, 0.1)
            self.running_var.lerp_(batch_var, 0.1)
        a, b = self.mean_mix.softmax(0), self.var_mix.softmax(0)
        mean = a[0] * mean + a[1] * layer_mean + a[2] * batch_mean
        var = b[0] * var + b[1] * layer_var + b[2] * batch_var
        scale = self.weight * (var + 1e-5).rsqrt()
        return x * scale[..., None, None] + (self.bias - mean * scale)[..., None, None]


class Gate(nn.Module):
    """Factors `[L]` of the blocks: the mean over a batch of sigmoid(BatchNorm(Linear(flat input)))."""

    def __init__(self, shape: Sequence[int], blocks: int, switch: bool) -> None:
        super().__init__()
        self.norm = SwitchNorm(shape[0]) if switch else nn.Identity()
        self.linear = nn.Linear(torch.Size(shape).numel(), blocks)
        self.batchnorm = nn.BatchNorm1d(blocks)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.batchnorm(self.linear(self.norm(x).flatten(1)))
        return scores.sigmoid().mean(0)


def copy_of_state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


class GateTraining:
    """A client's gate and its optimiser, next to the training of the model.

    keep: maps the factors of the blocks to 1 for kept and 0 for dropped ones `[L]`. options: of the method. kept: bool
    `[L]`, the blocks kept in some step of the model; means: the mean factor in every such step.
    """

    def __init__(
        self, client: Client, gate: Gate, blocks: Blocks, keep: Callable[[Tensor], Tensor], options: PFedGate.Options
    ) -> None:
        self.client, self.gate, self.blocks, self.clip = client, gate, blocks, options.clip
        self.joint, self.memory = options.alternation == "joint", client.memory("gate")
        self.kept = torch.zeros(len(blocks.sizes), dtype=torch.bool, device=gate.linear.weight.device)
        self.means: list[Tensor] = []
        self._keep = keep
        momentum = client.learner.train.momentum
        self._optimizer = torch.optim.SGD(gate.parameters(), client.rate(options.lr_gate), momentum=momentum)
        if self.memory:
            self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": self.memory["optimizer"]})

    def steps(self, training: Training, places: Iterable[Tensor]) -> None:
        """Step (a) of the algorithm on each of these batches: the model is frozen and in evaluation mode."""
        with training.paused() as model:
            for index in places:
                batch = self.client.train.batch(index)
                self._compute_factors(batch[0], train=True)
                adapted = model.replace(params=self.blocks.scale(model.params, self.scale))
                loss, gradient = self.client.learner.gradient(adapted, batch, task_loss)
                self._descend(gradient, model.params)
                self.client.learner.ledger.add(loss)

    def step_model(self, training: Training, batch: Any) -> None:
        """Step (b): the gradient is taken at the adapted model, which the module's hooks see."""
        training.step(batch, at=partial(self._adapt, batch[0]))

    def edit(self, g: Tensor, w: Tensor) -> None:
        """Converts the gradient at the adapted model to that of the shared one, clipped to `clip`."""
        if self.joint:
            self._descend(g, w)
        g.copy_(self.blocks.scale(g, self.scale))
        shorten(g, self.clip)

    def finish(self) -> None:
        """Saves the state of the gate's optimiser."""
        if self.memory is not None:
            self.memory["optimizer"] = self._optimizer.state_dict()["state"]

    def _adapt(self, x: Tensor, w: Tensor) -> Tensor:
        self._compute_factors(x, train=self.joint)
        self.kept |= self.stays.bool()
        self.means.append(self.factors.detach().mean())
        return self.blocks.scale(w, self.scale)

    def _compute_factors(self, x: Tensor, train: bool) -> None:
        """The factors for a batch; a batch of one never updates the gate's BatchNorm."""
        self.gate.train(train and len(x) > 1)
        with torch.enable_grad():
            self.factors: Tensor = self.gate(x)
        self.stays = self._keep(self.factors)
        self.scale = self.factors.detach() * self.stays

    def _descend(self, g: Tensor, w: Tensor) -> None:
        """A step of the gate. A factor's gradient is its block's product with that at the adapted model."""
        self._optimizer.zero_grad()
        self.factors.backward(self.blocks.products(g, w) * self.stays)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.gate.parameters(), self.clip)
        self._optimizer.step()


def through_gate(g: Tensor, w: Tensor, s: Any) -> None:
    """The edit of a gradient by the training of a gate, `s.gate`."""
    s.gate.edit(g, w)


def shorten(g: Tensor, limit: float | None) -> None:
    """Clips a gradient to the norm `limit`."""
    if limit is not None:
        g.mul_((limit / (g.norm() + 1e-6)).clamp(max=1))
