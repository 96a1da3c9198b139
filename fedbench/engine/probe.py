"""Tests of a model before round 1, and its warnings."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbench import processor
from fedbench.engine.fit import Amount, Batches, Fit
from fedbench.engine.learner import Learner
from fedbench.engine.losses import outputs_of, parts_of
from fedbench.errors import ConfigError, as_config_error
from fedbench.module import seeds
from fedbench.module.inputs import inputs_of


def probe(learner: Learner, data: Batches, outputs: int) -> None:
    """Tries a forward pass and a gradient step. Raises ConfigError for what would fail in round 1."""
    flat, name = learner.flat, type(learner.module).__name__
    x = data.batch(torch.arange(min(2, len(data)), device=learner.device))[0]
    inputs = inputs_of(learner.module)
    given = inputs.fields if inputs and inputs.fields.sample else f"of shape {tuple(x.shape[1:])}"
    failure = f"model {name} fails on samples {given}"
    with as_config_error(failure), learner.evaluator.evaluating(flat.initial()), torch.no_grad(), flat.autocast():
        output = flat.module(x)
    check_outputs(learner, output, len(x), outputs)
    batches = f" on batches {inputs.fields.described}" if inputs else ""
    with as_config_error(f"model {name} fails in training{batches}"), seeds.preserved_streams():
        learner.fit(Fit(flat.initial(), data, "probe", Amount(steps=1)))
    learner.ledger.clear()


def check_outputs(learner: Learner, output: object, count: int, outputs: int) -> None:
    """Raises ConfigError if forward's result for `count` samples is not `outputs` outputs each."""
    name, classes, found = type(learner.module).__name__, learner.task.classes, outputs_of(output)
    legal = [(count, outputs)] if outputs > 1 or classes else [(count, 1), (count,)]
    fitting = [part for part in parts_of(output) if isinstance(part, Tensor) and tuple(part.shape) in legal]
    if len(fitting) > 1:
        raise ConfigError(
            f"model {name}: forward(x) returns {len(fitting)} tensors of shape {list(fitting[0].shape)}, and each "
            'could be the outputs: return the outputs alone, or {"logits": outputs, ...}'
        )
    if not isinstance(found, Tensor) or tuple(found.shape) not in legal:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        what = "class scores" if classes else "numbers"
        one = classes and outputs == 2 and got in ((count,), (count, 1))
        hint = "; for one logit z return torch.stack([torch.zeros_like(z), z], 1), z [batch]" if one else ""
        raise ConfigError(
            f"model {name}: forward(x) must return {what} of shape [batch, {outputs}], it returned {got} for a "
            f"batch of {count}{hint}"
        )


def probe_metrics(learner: Learner, data: Batches) -> None:
    """Tries the chosen metrics on a client's samples. Raises ConfigError for one that fails."""
    if learner.task.further and len(data):
        with as_config_error("evaluate.metrics"):
            learner.evaluate(learner.initial(), data)


def model_warnings(learner: Learner, sizes: Sequence[int]) -> list[str]:
    """Warnings about a model and about clients with so many training images."""
    lines = [
        f"{copy} is a copy of the model inside the model: it counts as buffers, which are sent and averaged with "
        "the model where a method does that (method.buffers = private: they stay at the clients)"
        for copy in learner.flat.copies
    ]
    single = sum(size == 1 for size in sizes)
    if single and learner.layout.has_batchnorm:
        lines.append(
            f"{single} client(s) have one training image: their BatchNorm layers train with running statistics, "
            "because one image has no variance"
        )
    if learner.train.precision == "bf16-mixed" and learner.device.type == "cpu" and processor.has("bf16") is False:
        lines.append(
            "train.precision = bf16-mixed: this processor has no bfloat16 instructions, which makes it many times "
            "slower than 32-true"
        )
    return lines
