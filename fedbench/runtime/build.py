"""Builds the learner, the method and the context of both its halves from a resolved configuration."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn

from fedbench import models
from fedbench.config import Config
from fedbench.config.counts import count_of
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition
from fedbench.engine.learner import Learner
from fedbench.engine.private_loop import PrivateSteps
from fedbench.errors import ConfigError, as_config_error
from fedbench.methods.base import Method, ModelFacts
from fedbench.methods.contract import hook_error
from fedbench.methods.server import Context
from fedbench.models.network import Network
from fedbench.module import seeds
from fedbench.module.copies import copies_in
from fedbench.module.flat import default_type
from fedbench.module.inputs import attach
from fedbench.module.layout import Layout
from fedbench.module.weights import Weights
from fedbench.runtime.resolved import ResolvedRun
from fedbench.user_code.given_model import copies_instance


@dataclass(frozen=True)
class RunParts:
    """The objects of a process in one run, for the clients with one of its models; those of the first are the server's.

    others: the parts for the models after the first, in the order in which clients get them.
    """

    run: ResolvedRun
    seed: int
    learner: Learner
    context: Context
    method: Method
    model: str
    others: tuple["RunParts", ...] = ()

    @property
    def models(self) -> tuple["RunParts", ...]:
        return (self, *self.others)

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of parameters of the model, and of those that clients share."""
        return {"parameters": self.learner.layout.size, "shared": self.method.shared_params.size}

    def of(self, client: int) -> "RunParts":
        """The parts of the model of a client."""
        return self.models[client % len(self.models)]


def build_parts(run: ResolvedRun, partition: Partition, seed: int, device: str = "cpu") -> RunParts:
    """The parts of a run for one of its seeds."""
    known: dict[str, RunParts] = {}
    for name in dict.fromkeys(run.config.model.names):
        learner = build_learner(run.with_model(name), seed, device)
        context = make_context(run.with_model(name), partition, seed, learner)
        known[name] = RunParts(run, seed, learner, context, make_method(run, context), name)
    first, *others = (known[name] for name in run.config.model.names)
    return replace(first, others=tuple(others))


def build_learner(run: ResolvedRun, seed: int, device: str = "cpu") -> Learner:
    """The learner of a run with one model; every process builds the same start model from the seed."""
    config, dataset = run.config, run.dataset
    module = _draw_module(run, seed)
    copies = copies_in(module)  # before their numbers differ
    if config.train.precision == "64-true":
        module.double()  # before weights of that precision are copied into it

    usual = torch.get_default_dtype()

    def beside(name: str | None) -> nn.Module:
        with default_type(usual):  # the same numbers as those of the run's model, whatever the type of additions is
            return _draw_module(run.with_model(name or run.first_model), seed)

    def adapt(module: nn.Module, layout: Layout) -> None:
        with as_config_error(f"method {config.method.name}: adapt_model fails"):
            facts = ModelFacts(seed, dataset.classes, features_of(module, layout), beside)
            run.method.adapt_model(module, layout, run.options, facts)

    with seeds.preserved_streams():
        seeds.seed_everything(seed, "setup")  # hooks of the module may build layers
        return Learner(
            module,
            config.train,
            optimizer=config.train.optimizer,
            rounds=config.rounds,
            head=config.model.head,
            weights=config.model.weights,
            copies=copies,
            adapt=adapt,
            device=device,
            task=run.task,
            evaluate_batch=config.evaluate.batch_size,
            by_batches=config.evaluate.accuracy == "batches",
            private=private_steps(config),
        )


def _draw_module(run: ResolvedRun, seed: int) -> LightningModule:
    """The module with the weights that the model draws with a seed."""
    with seeds.preserved_streams():
        seeds.seed_everything(seed, "model")
        module = build_model(run)
    if run.dataset.fields and not isinstance(module, Network):
        double = run.config.train.precision == "64-true"
        attach(module, run.dataset.fields, torch.float64 if double else torch.float32)
    return module


def private_steps(config: Config) -> PrivateSteps | None:
    """How clients make private steps, if they do."""
    privacy = config.privacy
    if privacy.level != "sample" or privacy.clip is None:
        return None
    return PrivateSteps(privacy.clip, privacy.noise, config.method.name)


def changes_of_uploads(config: Config) -> str:
    """The setting that changes uploads on their way, with its value; empty if there is none."""
    if config.compression.name != "none":
        return f"compression.name = {config.compression.name}"
    privacy = config.privacy
    return f"privacy.clip = {privacy.clip:g}" if privacy.clip is not None and privacy.level == "client" else ""


def build_model(run: ResolvedRun) -> LightningModule:
    """A new module for the data of a run. Raises ConfigError."""
    config, dataset = run.config, run.dataset
    kind = models.load(config.model.name)
    if dataset.kind == "token" and issubclass(kind, Network) and not kind.images_only:
        users = ":" in config.data.name and not config.data.name.startswith("leaf:")
        raise ConfigError(
            f"model {config.model.name}: takes numbers, but the samples of {config.data.name} are tokens; bring a "
            f"LightningModule of your own, with an embedding{', or set data.kind = feature if they are counts' * users}"
        )
    return models.build(config.model.name, sample_shapes(dataset), dataset.outputs, run.task, **config.model.options)


def sample_shapes(dataset: Dataset) -> Any:
    """The shape of a sample, or the shapes of its arrays in their structure: what a constructor gets."""
    return dataset.fields.shapes if dataset.fields and dataset.fields.sample else dataset.shape


def features_of(module: nn.Module, layout: Layout) -> int:
    """The size of the head's input, or 0 if the head is not one linear layer."""
    head = module.get_submodule(layout.head_name) if layout.head_name else None
    return head.in_features if isinstance(head, nn.Linear) else 0


def drawn_model(run: ResolvedRun, device: str, seed: int) -> Weights:
    """The start model of another seed, on the device. Raises ConfigError if its weights are given."""
    if run.config.model.weights:
        raise ConfigError(
            f"model.weights = {run.config.model.weights}: method {run.config.method.name} draws several start models, "
            "which a file does not hold; leave it out, or set method.init = jitter"
        )
    if copies_instance(models.load(run.config.model.name)):
        raise ConfigError(
            f"model {run.config.model.name} is an instance: method {run.config.method.name} draws several start "
            "models, and all would be this one; pass the class, or set method.init = jitter"
        )
    with seeds.preserved_streams():
        return build_learner(run, seed, device).initial()


def make_context(run: ResolvedRun, partition: Partition, seed: int, learner: Learner) -> Context:
    config = run.config
    return Context(
        layout=learner.layout,
        train=config.train,
        seed=seed,
        planned_rounds=config.rounds,
        classes=run.dataset.classes,
        sizes=tuple(partition.sizes("train").tolist()),
        public=0 if partition.public is None else len(partition.public),
        method=config.method.name,
        participants_per_round=count_of(len(partition.clients), config.participation),
        newcomers=len(partition.newcomers),
        samples=run.dataset.kind,
        sample_shape=() if run.dataset.kind == "fields" else run.dataset.shape,
        optimizer_reevaluates=learner.optimizer_reevaluates,
        private_steps=private_steps(config) is not None,
        changes_uploads=changes_of_uploads(config),
        aggregator=run.aggregator,
        draw_model=cache(partial(drawn_model, run, str(learner.device))),
        label_accuracy=_label_accuracy(run.dataset, partition),
    )


def _label_accuracy(dataset: Dataset, partition: Partition) -> Callable[[Tensor], float] | None:
    """A function of labels of the public images: the share equal to the data set's labels."""
    if partition.public is None or not dataset.classes:
        return None
    true = torch.as_tensor(dataset.labels[partition.public])
    return lambda labels: float((labels == true).double().mean())


def make_method(run: ResolvedRun, context: Context) -> Method:
    method = run.method(run.options, context)
    if not hasattr(method, "shared_params"):
        raise hook_error(method, "__init__", "must call super().__init__(options, context)")
    return method
