"""From a resolved configuration to what works: the learner, the method, and what both halves of it know."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fedbench import methods, models
from fedbench.aggregation import aggregator
from fedbench.config import Config
from fedbench.config.counts import count_of
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition
from fedbench.engine.learner import Learner
from fedbench.errors import as_config_error
from fedbench.methods.base import Method
from fedbench.methods.contract import wrong
from fedbench.methods.server import Context
from fedbench.models import state_dicts
from fedbench.module import seeds
from fedbench.module.copies import copies_in
from fedbench.module.layout import Layout
from fedbench.tasks import load


@dataclass(frozen=True)
class Parts:
    """What a process works with in one run."""

    config: Config
    seed: int
    learner: Learner
    context: Context
    method: Method


def assembled(config: Config, dataset: Dataset, partition: Partition, seed: int, device: str = "cpu") -> Parts:
    """The parts of a resolved configuration with one seed."""
    learner = build_learner(config, dataset, seed, device)
    context = make_context(config, dataset, partition, seed, learner)
    return Parts(config, seed, learner, context, make_method(config, context))


def build_learner(config: Config, dataset: Dataset, seed: int, device: str = "cpu") -> Learner:
    """Every process builds the same start model from the seed."""
    task = load(dataset.task, config.evaluate.model_dump())
    with seeds.preserved_streams():
        seeds.seed_everything(seed, "model")
        module = models.build(config.model.name, dataset.shape, dataset.outputs, task, **config.model.options)
    copies = copies_in(module)  # before their numbers differ
    if config.train.precision == "64-true":
        module.double()  # before weights of that precision are copied into it
    if config.model.weights:
        state_dicts.load(module, config.model.weights)
    kind = methods.load(config.method.name)
    options = kind.Options(**config.method.options)

    def adapt(module: nn.Module, layout: Layout) -> None:
        with as_config_error(f"method {config.method.name}: adapt_model fails"):
            kind.adapt_model(module, layout, options=options, seed=seed)

    return Learner(
        module,
        config.train,
        optimizer=config.train.optimizer,
        rounds=config.rounds,
        head=config.model.head,
        copies=copies,
        adapt=adapt,
        device=device,
        task=task,
        evaluate_batch=config.evaluate.batch_size,
        by_batches=config.evaluate.accuracy == "batches",
    )


def make_context(config: Config, dataset: Dataset, partition: Partition, seed: int, learner: Learner) -> Context:
    return Context(
        layout=learner.layout,
        train=config.train,
        seed=seed,
        rounds=config.rounds,
        classes=dataset.classes,
        sizes=tuple(partition.sizes("train").tolist()),
        public=0 if partition.public is None else len(partition.public),
        drawn=count_of(len(partition.clients), config.participation),
        aggregator=aggregator.make(config.aggregator),
        grade=_grade(dataset, partition),
    )


def _grade(dataset: Dataset, partition: Partition) -> Callable[[Tensor], float] | None:
    """The share of labels of the public images that are the data set's."""
    if partition.public is None or not dataset.classes:
        return None
    return partial(_share_equal, torch.as_tensor(dataset.labels[partition.public]))


def _share_equal(true: Tensor, labels: Tensor) -> float:
    return float((labels == true).double().mean())


def make_method(config: Config, context: Context) -> Method:
    kind = methods.load(config.method.name)
    method = kind(kind.Options(**config.method.options), context)
    if not hasattr(method, "shared"):
        raise wrong(method, "__init__", "must call super().__init__(options, context)")
    return method
