"""Warnings: before round 1, of a valid but probably unintended configuration; later, of the scores.

What a method says, lost scores, and values without effect on the numbers are doubts (`results/remarks.py`); what is
said of data, models, engines and seeds are notes.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import NamedTuple

from fedbench import models
from fedbench.aggregation.aggregator import MEAN
from fedbench.config import Config, TrainConfig
from fedbench.config.keys import flat
from fedbench.data.partitions import Partition
from fedbench.engine.probe import model_warnings, output_remarks
from fedbench.errors import ConfigError
from fedbench.import_string import AT
from fedbench.methods import METHODS, load
from fedbench.methods.base import Method, takes_aggregators
from fedbench.methods.contract import check_trainers, hook_error, type_in_words
from fedbench.results.remarks import Doubt, as_doubts
from fedbench.runtime.build import RunParts
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.exchange import Scores
from fedbench.tasks import Task, mean_of
from fedbench.user_code.given_model import copies_instance


def first_warnings(parts: RunParts) -> list[str]:
    """The warnings of a run's models, method and configuration. Raises ConfigError if the method refuses them."""
    config, method, models = parts.run.config, parts.method, parts.models
    of_method = method_warnings(method, config.method.name)
    return [
        *(line for model in models for line in model_warnings(model.learner, parts.context.sizes)),
        *(line for model in models for line in warn_of_instance(model.model)),
        *config_warnings(config),
        *warn_of_schedules(method, [*dict.fromkeys(name for model in models for name in model.learner.schedules)]),
        *(line for model in models for line in warn_of_tied_head(model.method)),
        *warn_of_engine(method),
        *of_method,
    ]


def method_warnings(method: Method, name: str) -> list[str]:
    """The doubts of a method and its aggregator. Raises ConfigError if they refuse the configuration."""
    context, aggregator = method.context, method.context.aggregator
    if aggregator.name != MEAN and not takes_aggregators(type(method)):
        able = ", ".join(other for other, kind in METHODS.loadable() if takes_aggregators(kind))
        raise ConfigError(
            f"aggregator.name = {aggregator.name}: the server half of method {name} does not average; leave it out, or "
            f"use a method that does: {able}"
        )
    check_trainers(method)
    with context.allow_rounds():
        lines = method.check()
        if isinstance(lines, str) or not isinstance(lines, Iterable):
            raise hook_error(method, "check", f"must return a list of lines to say; it returned {type_in_words(lines)}")
        lines = list(lines)
    return as_doubts([*lines, *aggregator.check(context.participants_per_round, method.shared_params.size)])


def warn_of_outputs(parts: RunParts, partition: Partition) -> list[str]:
    """Warns of what models return for samples of the first client."""
    run, lines = parts.run, list[str]()
    for learner in (model.learner for model in parts.models):
        held = ClientData(run.config, run.dataset, partition, learner.device, learner.dtype)
        lines += output_remarks(learner, held.split([0], "train", (parts.seed, 0, 0)))
    return lines


def warn_of_instance(name: str) -> list[str]:
    """Warns that the seeds do not vary the initial weights. name: of the model."""
    if AT not in name or not copies_instance(models.load(name)):
        return []
    return [
        f"model {name} is an instance: every client starts from its weights for every seed, so seeds do not vary them; "
        "pass the class instead to draw them from the seed"
    ]


def warn_of_sample(evaluated: int, clients: int) -> list[str]:
    """Warns that scores are those of a sample."""
    if evaluated == clients:
        return []
    return [
        f"scores are those of {evaluated:,} of {clients:,} clients, drawn once and the same in every round "
        "(evaluate.clients; all: every client)"
    ]


def warn_of_undefined_outputs(seed: int, point: str, scores: Mapping[int, Scores], task: Task) -> list[str]:
    """Warns that models of an evaluation point give outputs that are not numbers."""
    flat_scores = [score for splits in scores.values() for score in splits.values()]
    if not any(isnan(mean_of(score, task.loss_metric)) for score in flat_scores if score):
        return []
    outcome = "none of them is correct" if task.primary.share else "their error is unknown"
    return [Doubt(f"seed {seed}: some outputs at {point} are not numbers, {outcome}: lower the learning rates")]


LOGGING = ("log_clients", "wandb.")
"""Beginnings of keys that decide what is logged, not the numbers."""


class UnusedKey(NamedTuple):
    """key: of `train`. decider: the key of `train` whose value takes its effect away, if one does."""

    key: str
    why: str
    decider: str = ""


def unused_train_keys(name: str, train: TrainConfig) -> list[UnusedKey]:
    """The keys of `train` that have no effect with the others and this method."""
    method, unused = load(name), list[UnusedKey]()
    if method.optimizer == "plain":
        why = f"{name} makes plain steps of its own"
        unused += [
            UnusedKey(key, why) for key in ("optimizer", "lr_scale", "momentum", "weight_decay", "keep_optimizer")
        ]
    elif method.optimizer == "run" and train.optimizer == "module":
        why = (
            "the model's configure_optimizers makes the steps; set it there, scale its rates with --train.lr_scale, or "
            "choose --train.optimizer sgd"
        )
        unused += [UnusedKey(key, why, "optimizer") for key in ("lr", "momentum", "weight_decay")]
    elif method.optimizer == "run" and train.optimizer in ("adam", "adamw"):
        unused.append(UnusedKey("momentum", f"train.optimizer = {train.optimizer} has none", "optimizer"))
    if method.optimizer == "own":
        unused.append(UnusedKey("lr_scale", f"{name} makes steps by an optimiser of its own; set train.lr"))
    elif method.optimizer == "run" and train.optimizer != "module":
        why = f"it scales the rates of a model's own optimiser; with train.optimizer = {train.optimizer} set train.lr"
        unused.append(UnusedKey("lr_scale", why, "optimizer"))
    if train.steps:
        unused.append(UnusedKey("epochs", f"train.steps = {train.steps} takes its place", "steps"))
    return unused


def config_warnings(config: Config) -> list[str]:
    """Lines about values without effect, because of others or because of the method. config: with all defaults."""
    method = load(config.method.name)
    usual, reasons = TrainConfig(**method.train_defaults), dict[str, list[str]]()
    for key, why, _ in unused_train_keys(config.method.name, config.train):
        value = getattr(config.train, key)
        if value != getattr(usual, key) and not (key == "optimizer" and value == "sgd"):
            text = f"{value:g}" if isinstance(value, float) else str(value)
            reasons.setdefault(why, []).append(f"train.{key} = {text}")
    lines: list[str] = [Doubt(f"{', '.join(values)}: without effect: {why}") for why, values in reasons.items()]
    given, defaults = flat(config.model_dump(mode="json")), flat(Config().model_dump(mode="json"))
    for key, why in unused_keys(config).items():
        if given[key] != defaults[key]:
            line = f"{key} = {given[key]}: without effect with {why}"
            lines.append(line if key.startswith(LOGGING) else Doubt(line))
    return lines


def unused_keys(config: Config) -> dict[str, str]:
    """The keys that have no effect because of the value of another key, which is given."""
    compression, public, balance = config.compression.name, config.public.size, config.public.balance
    no_public = "" if public else "public.size = 0"
    augments, loggers = config.data.augment, config.loggers
    no_augment = f"data.augment = {','.join(augments) or 'none'}"
    why = {
        "stragglers.work": "" if config.stragglers.share else "stragglers.share = 0",
        "privacy.delta": "" if config.privacy.noise else "privacy.noise = 0",
        **dict.fromkeys(("attack.share", "attack.scale"), "attack.name = none" * (config.attack.name == "none")),
        "compression.share": f"compression.name = {compression}" * (compression not in ("topk", "mask")),
        "compression.bits": f"compression.name = {compression}" * (compression != "quantised"),
        "compression.feedback": f"compression.name = {compression}" * (compression != "topk"),
        "public.balance": no_public,
        "public.alpha": no_public or f"public.balance = {balance}" * (balance != "dirichlet"),
        "data.crop_padding": no_augment * ("crop" not in augments),
        "data.rotate_degrees": no_augment * ("rotate" not in augments),
        "partition.noise_rate": "partition.noise_clients = none" * (not config.partition.noise_clients),
        "log_clients": "loggers = none" * (not loggers),
        **dict.fromkeys(
            (f"wandb.{key}" for key in ("project", "entity", "run_name", "tags", "mode")),
            f"loggers = {','.join(loggers) or 'none'}" * ("wandb" not in loggers),
        ),
    }
    return {key: reason for key, reason in why.items() if reason}


def warn_of_schedules(method: Method, schedules: Sequence[str]) -> list[str]:
    """Warns that the module's schedules, of these types, restart in every round."""
    if not schedules or method.optimizer != "run" or method.context.train.keep_optimizer:
        return []
    return [
        f"{' and '.join(schedules)}: the model's learning-rate schedule restarts in every round; "
        "--train.keep_optimizer true lets it continue where the client left off"
    ]


def warn_of_engine(method: Method) -> list[str]:
    """Warns if a method's steps are not compiled, or if a width is set and has no effect."""
    train = method.context.train
    if train.engine in ("loop", "trainer") and train.width != TrainConfig().width:
        return [f"train.width = {train.width}: without effect with train.engine = {train.engine}"]
    if train.engine != "compiled":
        return []
    if method.makes_steps(method.options):
        return [f"train.engine = compiled: {method.context.method} makes its steps itself, one client after another"]
    return []


def warn_of_tied_head(method: Method) -> list[str]:
    """Says for every tensor shared by head and body on which side a method that separates them counts it."""
    if "head" not in method.needs or method.private_params.all or not method.private_params.size:
        return []
    name, shared = method.context.layout.head_name, [slot for slot in method.context.layout.params if slot.tied]
    sides = [(slot, bool(method.private_params.mask[slot.place].any())) for slot in shared]
    return [
        f"{slot.name} belongs to the head '{name}' and to the body: {method.context.method} counts it as "
        + ("private, it stays at the clients" if private else "shared, it travels")
        for slot, private in sides
    ]
