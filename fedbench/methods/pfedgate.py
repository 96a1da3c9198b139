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

Longer than other method files because it trains a module of its own (gates.py) in three ways.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from math import ceil
from typing import Annotated, Any, ClassVar, Literal

import torch
from lightning import LightningModule
from pydantic import Field
from torch import Tensor, nn

from fedbench.bits import choose
from fedbench.errors import ConfigError
from fedbench.learner import seeds
from fedbench.learner.learner import Batches
from fedbench.learner.loop import task_loss
from fedbench.learner.weights import Weights
from fedbench.methods.base import Client, Context, Message, Method, OneBatch, Predictor, Server, Upload
from fedbench.methods.gates import Blocks, Gate, GateState, copied, moments_of, selected

Share = Annotated[float, Field(gt=0, le=1)]

AT_ONCE = 500
"""Images that a gate looks at at once, beside training."""


class PFedGate(Method):
    """A shared model whose blocks a private gate scales, and drops, for every batch."""

    class Options(Method.Options):
        sparsity: Share | list[Share] = Field(
            1.0, description="share of the elements that are kept in a step, s; a list has one for each client"
        )
        blocks_per_tensor: int = Field(1, ge=1, description="pieces that a parameter tensor is cut into")
        lr_gate: float | None = Field(None, ge=0, description="learning rate of the gate; none: that of the model")
        clip: float | None = Field(10.0, gt=0, description="largest norm of a gradient, of gate and model each; none")
        gate_norm: Literal["switch", "none"] = Field(
            "switch", description="normalisation of images before the gate: switchable, or none"
        )
        gate_eval: Literal["batch", "client"] = Field(
            "batch", description="factors when evaluating: of each evaluation batch, or of the client's training images"
        )
        alternation: Literal["epoch", "joint"] = Field(
            "epoch", description="a gate epoch before each model epoch, or one pass that trains both"
        )
        gate: bool = Field(True, description="false: every factor is 1, which is fedavg")

    train_defaults: ClassVar[dict[str, Any]] = {"lr": 0.1}

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self.blocks = Blocks.of(context.layout, options.blocks_per_tensor)
        self._module: Gate | None = None

    def check(self) -> None:
        options, clients = self.options, self.context.clients
        listed = options.sparsity if isinstance(options.sparsity, list) else [options.sparsity] * clients
        if len(listed) != clients:
            raise ConfigError(f"method.sparsity lists {len(listed)} shares for {clients} clients: one for each")
        if min(listed) < 1 and options.blocks_per_tensor < 2:
            raise ConfigError(
                "method.sparsity < 1 with method.blocks_per_tensor = 1 could drop a whole layer: cut tensors into 2 "
                "blocks or more"
            )
        if min(listed) < 1 and not options.gate:
            raise ConfigError("method.sparsity < 1 with method.gate = false: no gate says which blocks to keep")
        if options.gate and self.context.train.batch_size == 1:
            raise ConfigError("train.batch_size = 1: the gate has BatchNorm and trains on 2 images or more at a time")

    def sparsity(self, client: int) -> float:
        given = self.options.sparsity
        return given[client] if isinstance(given, list) else given

    def global_weights(self, server: Server) -> Weights | None:
        """None: without a gate the shared model is nobody's predictor."""
        return None if self.options.gate else super().global_weights(server)

    # -- the gate -----------------------------------------------------------------------------------------------------

    def start(self, client: Client) -> None:
        if self.options.gate:
            with seeds.preserved_torch_stream():
                seeds.seed_torch(seeds.derive(client.seed, client.id, "gate"))
                client.state["gate"] = copied(self._new_gate(client))

    def _new_gate(self, client: Client) -> "Gate":
        shape = tuple(client.train.batch(torch.arange(0, device=client.learner.device))[0].shape[1:])
        switch = self.options.gate_norm == "switch"
        if switch and (len(shape) != 3 or shape[1] * shape[2] < 2):
            raise ConfigError(
                f"method.gate_norm = 'switch' normalises images, an input here has shape {list(shape)}: set it to none"
            )
        return Gate(shape, len(self.blocks.sizes), switch).flat(client.learner.device, client.learner.dtype)

    def gate(self, client: Client, state: GateState) -> "Gate":
        """The one gate module of this process with a client's numbers, in evaluation mode."""
        if self._module is None:
            with seeds.preserved_torch_stream():
                self._module = self._new_gate(client)
        self._module.load_state_dict(state)
        return self._module.eval()

    def keep(self, client: Client, factors: Tensor) -> Tensor | float:
        """`[L]`: 1 for the blocks that stay, 0 for the others; without gradient."""
        share = self.sparsity(client.id)
        if share == 1:
            return 1.0
        found = selected(factors.tolist(), self.blocks.sizes, self._groups(client), self.blocks.first, share)
        return factors.new_tensor(found)

    def _groups(self, client: Client) -> list[bool]:
        """For each block whether its tensor belongs directly to a Linear module."""
        linear = {name for name, module in client.learner.module.named_modules() if isinstance(module, nn.Linear)}
        owners = [slot.name.rpartition(".")[0] in linear for slot in self.context.layout.params]
        return [owner for owner, cut in zip(owners, self.blocks.cuts, strict=True) for _ in range(cut.count)]

    # -- rounds -------------------------------------------------------------------------------------------------------

    def fit(self, client: Client, received: Weights, download: Message) -> Upload:
        if not self.options.gate:
            return super().fit(client, received, download)
        training = GateTraining(self, client)
        trained = training.run(received)
        kept = self.blocks.spread(training.kept)  # [N]
        if self.sparsity(client.id) < 1:
            trained = trained.replace(params=choose(kept, trained.params, received.params))
        client.state["gate"] = copied(training.gate)
        upload = self.upload(client, trained, traces=training.traces(kept))
        client.fitted = self.predictor(client, trained)
        if self.sparsity(client.id) < 1:
            left_out = int((~kept).sum()) * trained.params.element_size()
            upload.charge = upload.wire_bytes() - left_out + ceil(len(training.kept) / 8)
        return upload

    def untrained(self, client: Client) -> Predictor:
        """The start model under the gate that the client was given."""
        return self.predictor(client, client.initial) if self.options.gate else client.initial

    def personal(self, client: Client, download: Message) -> Predictor:
        received = self.receive(client, download)
        return self.predictor(client, received) if self.options.gate else received

    def predictor(self, client: Client, weights: Weights) -> Predictor:
        """The model as the client's gate adapts it: to each evaluation batch, or to its training images."""
        state = client.state["gate"]
        if self.options.gate_eval == "batch":
            return partial(self._predict, client, weights, state)
        gate, images = self.gate(client, state), len(client.train)
        totals = [gate.factors(x).sum(0) for x, _, _ in parts(client.train, client, client.learner.evaluate_batch)]
        return self._adapted(client, weights, torch.stack(totals).sum(0) / images)

    def _predict(self, client: Client, weights: Weights, state: GateState, data: Batches) -> Tensor:
        found = []
        for x, y, _ in parts(data, client, client.learner.evaluate_batch):
            factors, _ = self.gate(client, state)(x)
            found.append(client.learner.logits(self._adapted(client, weights, factors), OneBatch(x, y, data.key)))
        return torch.cat(found)

    def _adapted(self, client: Client, weights: Weights, factors: Tensor) -> Weights:
        return weights.replace(params=self.blocks.scaled(weights.params, factors * self.keep(client, factors)))


class GateTraining:
    """One round of one client: the gate and its optimiser beside the learner's fit of the model.

    In a model step the module's parameters are those of the adapted model until its gradient is there: the module's own
    hooks around it see these, and what they do to the gradient counts, with `joint` for the gate too. augmented:
    whether model steps may see other images than the data's. kept: bool `[L]`, the blocks that a model step has kept.
    """

    def __init__(self, method: PFedGate, client: Client) -> None:
        self.method, self.client, self.learner = method, client, client.learner
        self.train, self.options, self.blocks = method.context.train, method.options, method.blocks
        self.gate = method.gate(client, client.state["gate"])
        self.least = min(2, len(client.train))
        rate = self.train.lr if self.options.lr_gate is None else self.options.lr_gate
        self.flat = nn.Parameter(self.gate.w)
        self.optimizer = torch.optim.SGD(
            [self.flat], rate * self.learner.lr_factor, momentum=self.train.momentum, fused=True
        )
        self.adapted = torch.empty_like(self.learner.w)
        self.kept = torch.full((len(self.blocks.sizes),), method.sparsity(client.id) == 1, device=self.learner.device)
        self.factors: list[Tensor] = []
        self.losses: list[Tensor] = []
        self.augmented = self.learner.alters(client.train)
        self.moments: Tensor | None = None
        if self.gate.norm is not None:
            self.moments = torch.cat([moments_of(x) for x, _, _ in parts(client.train, client, AT_ONCE)], 1)
        self.each: Tensor | None = None

    def run(self, received: Weights) -> Weights:
        """The trained model; the gate is trained in place."""
        memory = self.client.memory("gate")
        if memory:
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": memory["optimizer"]})
        more: dict[str, Any] = {}
        if self.options.alternation == "joint":
            self._mode(train=True)
            more = {"loss": self.joint_loss, "gradient": self.joint_gradient}
        else:
            more = {"loss": self.model_loss, "gradient": self.model_gradient}
            self.batches = self.learner.epochs(self.client.train, "gate", least=self.least)
            if self.train.steps is None:
                more["before_epoch"] = self.gate_epoch
            else:
                self.orders: Iterator[Tensor] = chain.from_iterable(self.batches)
        data, own = self.client.train, self.client.memory("fit")
        try:
            trained = self.learner.fit(received, data, memory=own, least=self.least, **more)
        finally:
            self._show(self.learner.w)
        self.learner.ledger.add(self.losses)
        if memory is not None:
            memory["optimizer"] = self.optimizer.state_dict()["state"]
        return trained

    # -- the gate -----------------------------------------------------------------------------------------------------

    def _mode(self, train: bool) -> None:
        """BatchNorm of a client with a single image never leaves evaluation mode."""
        self.gate.train(train and self.least > 1)

    def gate_epoch(self, epoch: int, weights: Weights, s: Any) -> None:
        """Step (a) of the algorithm: one pass that trains the gate; the model is frozen and in evaluation mode.

        What the gate then says of each image holds for step (b), unless images are augmented there.
        """
        for order in next(self.batches):
            self.gate_step(weights, order)
        if not self.augmented:
            images = parts(self.client.train, self.client, AT_ONCE)
            self.each = torch.cat([self.gate.factors(x, self.known(index)) for x, _, index in images])

    def known(self, index: Tensor) -> Tensor | None:
        """What the gate's normalisation has to know of these training images, which are the same in every epoch."""
        return None if self.moments is None else self.moments[:, index]

    def gate_step(self, weights: Weights, order: Tensor) -> None:
        """One step of the gate. What the loss says of a factor is its gradient at the adapted model, block by block."""
        batch = self.client.train.batch(order)
        self._mode(train=True)
        factors, back = self.gate(batch[0], self.known(order))
        keep = self.method.keep(self.client, factors)
        if self.options.blocks_per_tensor == 1:
            adapted = weights.replace(params=self.blocks.scaled(weights.params, factors, out=self.learner.w))
            loss, products = self.learner.loss_and_products(adapted, batch)
            slopes = products / factors.clamp(min=torch.finfo(factors.dtype).tiny)
        else:
            adapted = weights.replace(params=self.blocks.scaled(weights.params, factors * keep))
            loss, gradient = self.learner.loss_and_gradient(adapted, batch, own_loss)
            slopes = self.blocks.products(gradient, weights.params) * keep
        self.losses.append(loss)
        self._descend(back(slopes))
        self._mode(train=False)

    def _descend(self, gradient: Tensor) -> None:
        self.flat.grad = gradient.mul_(shortening(gradient.norm(), self.options.clip))
        self.optimizer.step()

    # -- the model ----------------------------------------------------------------------------------------------------

    def model_loss(self, net: LightningModule, batch: Any, s: Any) -> Tensor:
        """Step (b): the loss of the model as the gate, frozen, adapts it."""
        if self.train.steps is not None:
            weights = self.learner.weights()
            self.gate_step(weights, next(self.orders))
            self.learner.load(weights)
        return self._adapted_loss(batch, self.gate(batch[0])[0] if self.each is None else self.each[s.index].mean(0))

    def model_gradient(self, g: Tensor, w: Tensor, s: Any) -> None:
        """Of the shared model, from that of the adapted one: times its factors, and no longer than `clip`."""
        self._show(w)
        factors = self.scale
        if self.options.clip is not None:
            squares = self.blocks.products(g, g) * factors.square()
            factors = factors * shortening(squares.sum().sqrt(), self.options.clip)
        self.blocks.scaled(g, factors, out=g)

    def joint_loss(self, net: LightningModule, batch: Any, s: Any) -> Tensor:
        """The loss from which both learn."""
        factors, self.back = self.gate(batch[0], None if self.augmented else self.known(s.index))
        return self._adapted_loss(batch, factors)

    def joint_gradient(self, g: Tensor, w: Tensor, s: Any) -> None:
        """The gate's step, then the gradient of the shared model."""
        self._descend(self.back(self.blocks.products(g, w) * self.keep))
        self.model_gradient(g, w, s)

    def _adapted_loss(self, batch: Any, factors: Tensor) -> Tensor:
        self.keep = self.method.keep(self.client, factors)
        self.kept |= torch.as_tensor(self.keep, device=self.kept.device).bool()
        self.factors.append(factors.mean())
        self.scale = factors * self.keep
        self._show(self.blocks.scaled(self.learner.w, self.scale, out=self.adapted))
        return task_loss(self.learner.module, batch)

    def _show(self, vector: Tensor) -> None:
        """Make the module's parameters views of a vector `[N]`."""
        for slot, parameter in zip(self.learner.layout.params, self.learner.parameters, strict=True):
            parameter.data = vector[slot.start : slot.stop].view(slot.shape)
        torch.clear_autocast_cache()  # of what the parameters were before

    def traces(self, kept: Tensor) -> dict[str, float]:
        """gate: mean factor of the model steps; mask_share: share of the elements that they kept, also per layer."""
        found = {"gate": float(torch.stack(self.factors).mean())} if self.factors else {}
        found["mask_share"] = float(kept.double().mean())
        if self.method.sparsity(self.client.id) < 1:
            for slot in self.learner.layout.params:
                found[f"mask_share/{slot.name}"] = float(kept[slot.start : slot.stop].double().mean())
        return found


def own_loss(net: LightningModule, batch: Any, s: Any) -> Tensor:
    """The module's own."""
    return task_loss(net, batch)


def shortening(norm: Tensor, limit: float | None) -> Tensor | float:
    """What brings a gradient of this norm to the norm `limit`, if it is longer."""
    return 1.0 if limit is None else (limit / (norm + 1e-6)).clamp(max=1)


def parts(data: Batches, client: Client, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """All data in order, so many at a time: images, labels and their places."""
    for index in torch.arange(len(data), device=client.learner.device).split(size):
        yield *data.batch(index), index
