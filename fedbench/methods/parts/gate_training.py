"""pFedGate's steps: those of a gate on the loss of the model that it adapts, and those of the model under its gate."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine.loop import Training
from fedbench.engine.losses import task_loss
from fedbench.methods.client import Client
from fedbench.methods.parts.blocks import Blocks
from fedbench.methods.parts.gates import Gate


class GateTraining:
    """A client's gate and its optimiser beside the training of the model.

    keep: given the factors of the blocks, 1 for those that stay and 0 for the others `[L]`. options: those of the
    method. kept: bool `[L]`, the blocks that a step of the model has kept; means: the mean factor in every such step.
    """

    def __init__(
        self, client: Client, gate: Gate, blocks: Blocks, keep: Callable[[Tensor], Tensor], options: Any
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
                self._look(batch[0], train=True)
                adapted = model.replace(params=self.blocks.scaled(model.params, self.scale))
                loss, gradient = self.client.learner.gradient(adapted, batch, task_loss)
                self._descend(gradient, model.params)
                self.client.learner.ledger.add(loss)

    def step_model(self, training: Training, batch: Any) -> None:
        """Step (b): the gradient is taken at the adapted model, which the module's own hooks around it see."""
        training.step(batch, at=partial(self._adapted, batch[0]))

    def edit(self, g: Tensor, w: Tensor) -> None:
        """Of the gradient at the adapted model make that of the shared one, no longer than `clip`."""
        if self.joint:
            self._descend(g, w)
        g.copy_(self.blocks.scaled(g, self.scale))
        shorten(g, self.clip)

    def finish(self) -> None:
        """Keep the state of the gate's optimiser."""
        if self.memory is not None:
            self.memory["optimizer"] = self._optimizer.state_dict()["state"]

    def _adapted(self, x: Tensor, w: Tensor) -> Tensor:
        self._look(x, train=self.joint)
        self.kept |= self.stays.bool()
        self.means.append(self.factors.detach().mean())
        return self.blocks.scaled(w, self.scale)

    def _look(self, x: Tensor, train: bool) -> None:
        """The factors for a batch; a batch of one never moves the gate's BatchNorm."""
        self.gate.train(train and len(x) > 1)
        with torch.enable_grad():
            self.factors: Tensor = self.gate(x)
        self.stays = self._keep(self.factors)
        self.scale = self.factors.detach() * self.stays

    def _descend(self, g: Tensor, w: Tensor) -> None:
        """A step of the gate. The slope of a factor is its block's product with the gradient at the adapted model."""
        self._optimizer.zero_grad()
        self.factors.backward(self.blocks.products(g, w) * self.stays)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.gate.parameters(), self.clip)
        self._optimizer.step()


def through_gate(g: Tensor, w: Tensor, s: Any) -> None:
    """What the training of a gate, `s.gate`, makes of a gradient."""
    s.gate.edit(g, w)


def shorten(g: Tensor, limit: float | None) -> None:
    """Bring a gradient to the norm `limit`, if it is longer."""
    if limit is not None:
        g.mul_((limit / (g.norm() + 1e-6)).clamp(max=1))
