"""What a model promises: it trains as in plain Lightning, client by client, and says what it trains and sends."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from lightning import LightningModule

from fedbench import methods
from fedbench.checks.check import Check, CheckFailure, DoesNotApply
from fedbench.checks.model_fits import ModelFits
from fedbench.config import MethodConfig
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.module.hooks import (
    CALLED,
    NEED_TRAINER,
    NOT_IN_LOOP,
    READ,
    LoopContext,
    as_in_testing,
    batch_after_transfer,
    misspelt_hooks,
    overrides,
)
from fedbench.module.layout import Slot
from fedbench.module.logs import Logs
from fedbench.module.weights import Weights
from fedbench.runtime.build import make_context, make_method

NEAR = 1e-6
"""Largest difference between two ways to the same weights, relative to the largest weight."""
BUILDS = ("setup", "configure_model", "__init__")
LOGGING = ("validation", "test", "predict", "log", "print", "sanity")
"""Words of hooks that belong to evaluation or logging, which train nothing."""
ASKED = ("fedavg", "fedper", "fedbn")
"""Methods of which it is said what they share of a model, beside the one that is checked with it."""
HOOKS = [
    *(name for name in dir(LightningModule) if name.startswith(("on_", "configure_"))),
    *("train_dataloader", "val_dataloader", "prepare_data", "teardown"),
]


def runs(model: ModelFits) -> str:
    run = model.run
    name = type(model.learner.engine).__name__
    return f"engine {name}: {run.why}"


def as_in_lightning(model: ModelFits) -> str:
    if model.run.resolved.dataset.fields:
        raise DoesNotApply("batches have several arrays, which fedbench packs")
    ours, theirs = model.fit(0).params, model.in_lightning(0)
    difference, largest = float((ours - theirs).abs().max()), float(theirs.abs().max())
    if difference > NEAR * max(1.0, largest):
        raise CheckFailure(
            f"after the same {_steps(model)} batches the weights differ from lightning.Trainer's "
            f"by {difference:.2g}{_beginning(model)}: what it reads of its trainer, its clock or its own counters is "
            "another in a federated round; keep it in a buffer"
        )
    return f"the same batches through lightning.Trainer end with the same weights (difference {difference:.2g})"


def _steps(model: ModelFits) -> int:
    return sum(map(len, model.plan(0)))


def _beginning(model: ModelFits) -> str:
    """In which step, and in which tensor, the difference begins, in words."""
    for steps in range(1, _steps(model) + 1):
        ours, theirs = model.fit(0, steps).params, model.in_lightning(0, steps)
        apart = (ours - theirs).abs()
        if float(apart.max()) > NEAR * max(1.0, float(theirs.abs().max())):
            slot = next(s for s in model.layout.params if s.start <= int(apart.argmax()) < s.stop)
            return f", first after step {steps} in {slot.name}"
    return ""


def clients_do_not_meet(model: ModelFits) -> str:
    first = [model.fit(0), model.fit(1)]
    second = [model.fit(1), model.fit(0)][::-1]
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if not _equal(one, other):
            raise CheckFailure(
                f"client {number} ends with other weights when the other one trains first: something goes from one "
                "client to the next, such as a class variable or a global: keep it in a buffer (register_buffer)"
            )
    return "A then B is B then A"


def random_numbers(model: ModelFits) -> str:
    if not _equal(model.fit(0), model.fit(0)):
        raise CheckFailure(
            "two equal fits end with other weights: it draws from a generator of its own: draw with torch's functions, "
            "whose stream fedbench seeds for every fit"
        )
    return "two equal fits end with the same weights"


def _equal(one: Weights, other: Weights) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("params", "buffers", "counters"))


def outputs_in_evaluation(model: ModelFits) -> str:
    trained = model.fit(0)
    data = model.client(0)
    ours = model.learner.logits(trained, data)
    if not torch.equal(ours, model.learner.logits(trained, data)):
        raise CheckFailure("two evaluations differ: forward draws or changes something where self.training is false")
    if model.run.resolved.dataset.fields:
        return "two evaluations agree"
    module = model.module()
    model.load(module, trained)
    before = {name: value.clone() for name, value in module.named_buffers()}
    with torch.no_grad(), as_in_testing(module, LoopContext(Logs())):
        module.eval()
        theirs = module(batch_after_transfer(module, data.batch(torch.arange(len(data))), model.learner.device)[0])
    if moved := [name for name, value in module.named_buffers() if not torch.equal(value, before[name])]:
        raise CheckFailure(f"evaluation changes the buffer {moved[0]}: change it only where self.training is true")
    if isinstance(theirs, torch.Tensor) and theirs.shape == ours.shape:
        difference = float((ours - theirs).abs().max())
        if difference > NEAR * max(1.0, float(theirs.abs().max())):
            raise CheckFailure(f"outputs in evaluation differ from the module's own by {difference:.2g}")
    return "outputs are those of the module in eval()"


def hooks_are_called(model: ModelFits) -> str:
    module = model.module()
    if lines := list(misspelt_hooks(module)):
        raise CheckFailure(lines[0])
    known = {*CALLED, *READ, *NEED_TRAINER, *NOT_IN_LOOP, *BUILDS, "configure_optimizers"}
    own = [name for name in HOOKS if name not in known and overrides(module, name)]
    idle = [name for name in own if not any(word in name for word in LOGGING) and model.run.engine != "trainer"]
    if idle:
        raise CheckFailure(
            f"{type(module).__name__}.{idle[0]} is called by no engine: do it in __init__, in setup or in "
            f"{', '.join(CALLED[1:3])} or another hook of training"
        )
    quiet = [name for name in own if name not in idle]
    return f"not called, as fedbench evaluates itself: {', '.join(quiet)}" if quiet else ""


def parameters_are_trained(model: ModelFits) -> str:
    learner = model.learner
    if learner.left_out:
        raise CheckFailure(
            f"{', '.join(learner.left_out)} {'is' if len(learner.left_out) == 1 else 'are'} in no optimiser of "
            "configure_optimizers and never change: add them, or freeze them by requires_grad_(False)"
        )
    start, trained = learner.initial().params, model.fit(0).params
    idle = [slot.name for slot in model.layout.params if torch.equal(start[slot.place], trained[slot.place])]
    if idle:
        raise CheckFailure(
            f"{idle[0]} does not change in {plural(_steps(model), 'step')}: it gets no gradient, because the loss does "
            "not depend on it: use it in training_step, remove it, or freeze it by requires_grad_(False)"
        )
    return f"all {model.layout.size:,} numbers move"


def what_stays_with_clients(model: ModelFits) -> str:
    """Buffers that change, and attributes that do and are lost."""
    start, trained = model.learner.initial(), model.fit(0)
    model.fit(1)  # what the fit before has changed is seen at the next one
    if lines := [line for line in model.learner.remarks() if "stays with no client" in line]:
        raise CheckFailure(lines[0])
    moved = [slot.name for slot in model.layout.buffers if _moved(slot, start, trained)]
    return f"training changes the buffers {', '.join(moved)}" if moved else "training changes no buffer"


def _moved(slot: Slot, start: Weights, trained: Weights) -> bool:
    return not torch.equal(start.buffers[slot.place], trained.buffers[slot.place])


def what_is_shared(model: ModelFits) -> str:
    """Of some methods the numbers that are sent and stay, and the bytes of a client's round."""
    parts = []
    configs = {name: MethodConfig(name=name) for name in ASKED}
    if "method" in model.given.model_fields_set:
        configs[model.given.method.name] = model.given.method
    run = model.run.resolved
    for name, method_asked in configs.items():
        kind = methods.load(name)
        config = run.config.model_copy(deep=True, update={"method": method_asked})
        own = replace(run, config=config, method=kind, options=kind.Options(**method_asked.options))
        try:
            method = make_method(own, make_context(own, model.run.partition, run.seed, model.learner))
        except ConfigError as error:
            parts.append(f"{name}: refused ({error})")
            continue
        shared, stays = method.shared_params.size, method.private_params.size
        nbytes = 2 * (shared + method.shared_buffers.size) * model.learner.dtype.itemsize
        parts.append(f"{name} shares {shared:,} numbers, {stays:,} stay, {nbytes / 1000:,.1f} kB a round and client")
    return "; ".join(parts)


def _checks() -> Iterator[Check[ModelFits]]:
    """In the order in which they are asked."""
    named = {
        "runs": ("an engine runs it", runs),
        "lightning": ("the same batches as in lightning.Trainer give the same weights", as_in_lightning),
        "random": ("two equal fits are equal", random_numbers),
        "clients": ("nothing goes from one client to the next", clients_do_not_meet),
        "outputs": ("outputs in evaluation are the module's own", outputs_in_evaluation),
        "hooks": ("every hook that it overrides is called", hooks_are_called),
        "parameters": ("every parameter is trained", parameters_are_trained),
        "buffers": ("what changes is kept with the client", what_stays_with_clients),
        "shared": ("what is shared, what stays, how many bytes", what_is_shared),
    }
    for name, (proves, function) in named.items():
        yield Check(name, proves, "model", function)


MODEL_CHECKS = tuple(_checks())
