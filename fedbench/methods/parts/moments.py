"""Training of a part of the parameters, with Adam's moments for each part, for both together, or without any."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.fit import Step
from fedbench.methods.client import Client
from fedbench.module.masks import bitmask, choose
from fedbench.module.weights import Weights

Pairs = dict[str, dict[str, Any]]
"""By phase (or "both"): means of gradients `u` and of their squares `v` `[N]`, and how often they were updated."""


def train_part(
    client: Client, start: Weights, phase: str, part: Tensor, options: Any, pairs: Pairs
) -> tuple[Weights, int]:
    """Train a part `[N]` of the parameters; the model and the number of steps. Its moments in `pairs` go on."""
    decay, ledger = client.learner.train.weight_decay, client.learner.ledger
    before, dtype = ledger.steps, start.params.dtype
    edit = partial(masked_gradient, decay=decay)
    if options.moments == "none":
        step = Step(edit, rule=torch.optim.SGD, memory={}, part=part.to(dtype))
        return client.fit(start, client.train, phase, step=step), ledger.steps - before
    adam = partial(torch.optim.Adam, betas=(options.beta1, options.beta2), eps=options.eps)
    pair = pairs.setdefault("both" if options.moments == "shared" else phase, fresh(start.params))
    counter = start.params.new_tensor(pair["steps"], dtype=torch.float32)  # fused steps want it on the device
    memory: dict[str, Any] = {"optimizer": {"exp_avg": pair["u"], "exp_avg_sq": pair["v"], "step": counter}}
    if options.moments == "mask_aware":
        inside = part.to(dtype)
        memory["optimizer"]["exp_avg"] = pair["u"] * inside  # the others only lose weight, below
        model = client.fit(start, client.train, phase, step=Step(edit, rule=adam, memory=memory, part=inside))
    else:
        bits = bitmask(part, start.params)
        step = Step(rule=partial(adam, weight_decay=decay), memory=memory)
        with client.training(start, client.train, phase, step=step) as training:
            for batch in training:
                training.step(batch)
                choose(bits, training.w, start.params, in_place=True)
        model = training.weights
    steps, after = ledger.steps - before, memory["optimizer"]
    if options.moments == "mask_aware":
        after["exp_avg"].add_(pair["u"] * (1 - inside), alpha=options.beta1**steps)
    pair.update({"u": after["exp_avg"], "v": after["exp_avg_sq"], "steps": pair["steps"] + steps})
    return model, steps


def fresh(like: Tensor) -> dict[str, Any]:
    """Moments before the first step."""
    return {"u": torch.zeros_like(like), "v": torch.zeros_like(like), "steps": 0}


def masked_gradient(g: Tensor, w: Tensor, s: Any, decay: float = 0.0) -> None:
    """The gradient of a part, with weight decay; `[N]`, or a stack of clients `[K, N]`."""
    if decay:
        g.add_(w, alpha=decay)
    g.mul_(s.part)
