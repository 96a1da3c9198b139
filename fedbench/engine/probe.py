"""Tests of a model before round 1, and its warnings."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedbench import processor
from fedbench.config.words import plural
from fedbench.engine.fit import Amount, Batches, Fit
from fedbench.engine.learner import Learner
from fedbench.engine.losses import output_parts, outputs_of
from fedbench.errors import ConfigError, as_config_error
from fedbench.module import seeds
from fedbench.module.hooks import misspelt_hooks, tested_by
from fedbench.module.inputs import inputs_of
from fedbench.module.weights import Weights
from fedbench.tasks import TASKS
from fedbench.tasks.class_numbers import first_of
from fedbench.tasks.task import check_score

WEIGHT_FACTORS = (1.0, -1.0, 1e3, -1e3)
"""By which weights are multiplied to see whether outputs are bounded."""


def probe(learner: Learner, data: Batches, outputs: int) -> list[str]:
    """Tries a forward pass and a gradient step; returns remarks. Raises ConfigError for what would fail in round 1."""
    flat, name = learner.flat, type(learner.module).__name__
    # As many samples as outputs would hide that a model exchanges the two.
    few = torch.arange(min(3 if outputs == 2 else 2, len(data)), device=learner.device)
    x, y = data.batch(few)
    inputs = inputs_of(learner.module)
    given = f"of shape {tuple(x.shape[1:])}, {str(x.dtype).removeprefix('torch.')}"
    if x.dtype == torch.int64:
        given += " (tokens; --data.kind feature reads whole numbers as floats)"
    if inputs and inputs.fields.sample:
        given = f"{inputs.fields}{inputs.note(type(learner.module).forward)}"
    failure = f"model {name} fails on samples {given}"
    with as_config_error(failure), learner.evaluator.evaluating(flat.initial()), torch.no_grad(), flat.autocast():
        x = learner.evaluator.batch(data, few)[0]
        output = flat.module(x)
    check_outputs(learner, output, len(x), outputs, tuple(y.shape[1:]))
    batches = f" on batches {inputs.fields.description}" if inputs else ""
    with as_config_error(f"model {name} fails in training{batches}"), seeds.preserved_streams():
        learner.fit(Fit(flat.initial(), data, "probe", Amount(trial=True)))
    learner.ledger.clear()
    if learner.task.bit_logits and is_bounded(learner, data):
        raise ConfigError(
            f"model {name}: forward(x) returns numbers between 0 and 1 whatever its weights are, such as those of a "
            f"sigmoid; task {learner.task.name} takes outputs for logits, and above 0 for a 1: return what stands "
            "before the sigmoid, and train with binary_cross_entropy_with_logits"
        )
    return output_remarks(learner, data)


def output_remarks(learner: Learner, data: Batches) -> list[str]:
    """What is to be said of a model's outputs for two samples."""
    if not learner.task.classes or not _are_probabilities(outputs_on(learner, learner.initial(), data)):
        return []
    return [
        f"model {type(learner.module).__name__}: forward(x) returns probabilities, which add up to 1: the reported "
        "loss takes them for scores before the softmax; return those"
    ]


def outputs_on(learner: Learner, weights: Weights, data: Batches) -> object:
    """The outputs of a model with these weights for the first two samples."""
    evaluator, few = learner.evaluator, torch.arange(min(2, len(data)), device=learner.device)
    with evaluator.evaluating(weights), torch.no_grad(), learner.flat.autocast():
        return outputs_of(learner.flat.module(evaluator.batch(data, few)[0]))


def is_bounded(learner: Learner, data: Batches) -> bool:
    """Whether outputs lie in [0, 1] with any weights, and not all at 0: those of a linear layer leave it."""
    start = learner.initial()
    for factor in WEIGHT_FACTORS:
        outputs = outputs_on(learner, start.replace(params=start.params * factor), data)
        if not isinstance(outputs, Tensor) or not bool(((outputs >= 0) & (outputs <= 1)).all()) or not outputs.any():
            return False
    return True


def _are_probabilities(scores: object) -> bool:
    """Whether scores of several samples are rows of shares."""
    if not isinstance(scores, Tensor) or scores.ndim != 2 or min(scores.shape) < 2:
        return False
    rows = scores.float()
    return bool((rows >= 0).all()) and torch.allclose(rows.sum(1), torch.ones(len(rows), device=rows.device), atol=1e-3)


def check_outputs(learner: Learner, output: object, count: int, outputs: int, target: tuple[int, ...] = ()) -> None:
    """Raises ConfigError if forward's result for `count` samples has no shape of the task.

    outputs: the number of classes, or of a target's numbers. target: the shape of a target.
    """
    name, task, scores = type(learner.module).__name__, learner.task, outputs_of(output)
    legal = [(count, *shape) for shape in task.output_shapes(target, outputs)]
    fitting = [part for part in output_parts(output) if isinstance(part, Tensor) and legal and _fits(part, legal)]
    if len(fitting) > 1:
        raise ConfigError(
            f"model {name}: forward(x) returns {len(fitting)} tensors of shape {list(fitting[0].shape)}, and each "
            'could be the outputs: return the outputs alone, or {"logits": outputs, ...}'
        )
    if not isinstance(scores, Tensor) or not _fits(scores, legal or [(count, ...)]):
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        one = task.classes and outputs == 2 and got in ((count,), (count, 1))
        hint = "; if it returns one logit, set --task binary --partition iid (or natural, domain, file)" if one else ""
        if task.classes and isinstance(scores, Tensor) and scores.ndim == 2 and not hint:
            hint = "; a constructor's argument `classes` gets the number of classes of the data"
        shape = ", ".join(["batch", *(str(size or "any") for size in legal[0][1:])]) if legal else "batch, ..."
        raise ConfigError(
            f"model {name}: forward(x) must return {task.outputs_are} of shape [{shape}], it returned {got} for a "
            f"batch of {count}{hint}"
        )


def _fits(part: Tensor, legal: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a tensor has one of these shapes, in which None is any size, and ... any further dimensions."""
    return any(
        part.shape[:1] == shape[:1]
        if shape[1:] == (...,)
        else part.ndim == len(shape)
        and all(legal_size in (None, size) for size, legal_size in zip(part.shape, shape, strict=True))
        for shape in legal
    )


def probe_metrics(learner: Learner, data: Batches) -> None:
    """Tries the chosen metrics, and a task of the user's, on a client's samples. Raises ConfigError if one fails."""
    is_users = bool(TASKS.path(learner.task.name))
    if (learner.task.further or is_users) and len(data):
        with as_config_error(f"data.task = {learner.task.name}: score" if is_users else "evaluate.metrics"):
            score = learner.evaluate(learner.initial(), data)
            if is_users:
                check_score(learner.task, score)


def probe_logged(learner: Learner, data: Batches) -> None:
    """Tries the module's own evaluation on a client's samples. Raises ConfigError if it fails or logs nothing."""
    with as_config_error("evaluate.module_metrics"):
        if len(data) and not learner.module_metrics(learner.initial(), data):
            step = tested_by(learner.module)
            raise ConfigError(f"evaluate.module_metrics = true: the model's {step} logs no number; leave it out")


def model_warnings(learner: Learner, sizes: Sequence[int]) -> list[str]:
    """Warnings about a model and about clients with so many training images."""
    lines = list(misspelt_hooks(learner.module))
    lines += [
        f"{copy} is a copy of the model inside the model: it counts as buffers, which are sent and averaged with "
        "the model where a method does that (method.buffers = private: they stay at the clients)"
        for copy in learner.flat.copies
    ]
    in_eval_mode = learner.flat.in_eval_mode
    if outer := [name for name in in_eval_mode if name.rpartition(".")[0] not in in_eval_mode]:
        lines.append(
            f"model {type(learner.module).__name__}: built in evaluation mode, these parts stay in it while they "
            f"train, as in Lightning: {first_of(outer)}; for Dropout and BatchNorm to train, call their train() in "
            "__init__"
        )
    if learner.left_out:
        lines.append(
            f"model {type(learner.module).__name__}: the optimiser of its configure_optimizers lacks "
            f"{', '.join(learner.left_out)}, which it does not train; if that is meant, freeze them: "
            "requires_grad_(False)"
        )
    single = sizes.count(1)
    if single and learner.layout.has_batchnorm:
        lines.append(
            f"{plural(single, 'client')} with one training sample: BatchNorm layers train with running statistics "
            "there, because one sample has no variance"
        )
    if learner.train.precision == "bf16-mixed" and learner.device.type == "cpu" and processor.has("bf16") is False:
        lines.append(
            "train.precision = bf16-mixed: this processor has no bfloat16 instructions, which makes it many times "
            "slower than 32-true"
        )
    return lines
