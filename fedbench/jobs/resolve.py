"""Resolves a configuration: defaults of method, model and machine, and every check before round 1."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from lightning import LightningModule

from fedbench import methods, models
from fedbench.aggregation import rules
from fedbench.config import Config, EvaluateConfig
from fedbench.config.counts import count_of
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition, partition
from fedbench.data.partitions.pool import SamplePool
from fedbench.data.partitions.scheme import check_keys, with_client_count
from fedbench.data.reading.beside import Beside
from fedbench.engine.learner import Learner
from fedbench.engine.probe import probe, probe_logged, probe_metrics
from fedbench.errors import ConfigError, as_config_error
from fedbench.installation import install, missing, require
from fedbench.methods.base import Method
from fedbench.processor import cores
from fedbench.runtime.build import build_learner, make_context, make_method
from fedbench.runtime.clients.client_data import ClientData
from fedbench.runtime.ray import cluster
from fedbench.runtime.ray.placement_groups import room_on_gpus, share_of_gpu
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.states.scratch import Scratch
from fedbench.runtime.uploads.attacks import attackers, check_attack
from fedbench.runtime.uploads.compression import check_compression
from fedbench.runtime.uploads.privacy import check_privacy
from fedbench.runtime.warnings import method_warnings
from fedbench.user_code import refuse_exits

log = logging.getLogger("fedbench")

MOST_EVALUATED = 1000
"""Number of clients that are evaluated by default, at most."""
FEW_SAMPLES = 100
"""Number of samples by which a task refuses data."""
MOST_SHAPES = 4
"""Shapes that a message lists."""


@refuse_exits()
def resolve(config: Config, dataset: Dataset | None = None) -> ResolvedRun:
    """The requested run with every default filled in. dataset: if already loaded. Raises ConfigError."""
    config = with_defaults(config)
    dataset = dataset or Dataset.of_run(config)
    if not dataset.official:
        config.data.content = dataset.content
    config.partition = with_client_count(config.partition, SamplePool.of(dataset))
    choose_hosts(config)
    model_defaults(config, dataset.shape)
    run = ResolvedRun.of(config, dataset)
    _check_sizes(run)
    _check_task(run)
    if len(set(config.model.names)) > 1 and not takes_models(run.method):
        able = ", ".join(sorted(name for name, known in methods.METHODS.loadable() if takes_models(known)))
        raise ConfigError(
            f"model = {','.join(config.model.names)}: with {config.method.name} all clients have one model, because "
            f"it exchanges parameters of the whole model; name one model, or use a method for several: {able}"
        )
    return run


class Resolver:
    """Resolves several runs; data that they have in common are read once."""

    def __init__(self) -> None:
        self._datasets: dict[str, Dataset] = {}

    def resolve(self, config: Config) -> ResolvedRun:
        """The requested run with every default filled in. Raises ConfigError."""
        # Without `data.val`, which is another one in the final runs of a study than in the trials before.
        key = json.dumps([config.data.model_dump_json(exclude={"val"}), *Beside.of(config.partition)])
        run = resolve(config, self._datasets.get(key))
        self._datasets[key] = run.dataset
        return run


def with_defaults(config: Config) -> Config:
    """The configuration with the defaults that need no data: options, and the method's own. Raises ConfigError."""
    config = config.model_copy(deep=True)
    if "wandb" in config.loggers:
        require("wandb")
    options = methods.checked_options(config.method).model_dump(mode="json")
    config.method = type(config.method)(name=config.method.name, **options)
    chosen = rules.checked_options(config.aggregator).model_dump(mode="json")
    config.aggregator = type(config.aggregator)(name=config.aggregator.name, **chosen)
    _train_defaults(config, methods.load(config.method.name))
    check_keys(config.partition)
    return config


@refuse_exits()
def check_run(
    run: ResolvedRun, seeds: Sequence[int] | None = None, say: Callable[[str], None] = lambda line: None
) -> dict[int, Partition]:
    """The partitions of a run; tries model and method on the data. Raises ConfigError.

    seeds: those to check, if not all. say: called with every doubt of the method.
    """
    config, dataset = run.config, run.dataset
    partitions = {seed: partition(dataset, config, seed) for seed in (config.seeds if seeds is None else seeds)}
    if not partitions:
        return partitions
    if config.resources.scratch is not None:
        Scratch(config.resources.scratch).close()
    seed = next(iter(partitions))
    models = dict.fromkeys(config.model.names)
    methods_by_model = {name: _check_model(run.with_model(name), partitions[seed], seed, say) for name in models}
    _check_alike(config.method.name, methods_by_model)
    return partitions


def takes_models(kind: type[Method]) -> bool:
    """Whether clients can have models of their own, `model=A,B`, with a method."""
    return kind.common_shapes is not Method.common_shapes


def _check_alike(name: str, by_model: Mapping[str, Method]) -> None:
    """Raises ConfigError if what clients exchange has other shapes in one model than in another.

    by_model: the method of this name with each of the models.
    """
    (first, own), *others = [(model, method.common_shapes()) for model, method in by_model.items()]
    for model, other in others:
        if other is None or other != own:
            raise ConfigError(
                f"model = {','.join(by_model)}: what clients of {name} exchange must have the same shapes in all "
                f"models, and has {_words(own)} in {first}, {_words(other)} in {model}; choose models that agree in it"
            )


def _words(shapes: Sequence[tuple[int, ...]] | None) -> str:
    texts = [str(list(shape)) for shape in shapes or ()]
    return ", ".join([*texts[:MOST_SHAPES], *["..."] * (len(texts) > MOST_SHAPES)]) or "none"


def _check_model(run: ResolvedRun, partition: Partition, seed: int, say: Callable[[str], None]) -> Method:
    """Tries a run's model and method on the data; returns the method. Raises ConfigError."""
    config, dataset = run.config, run.dataset
    learner = build_learner(run, seed)
    context = make_context(run, partition, seed, learner)
    if "head" in run.method.needs:
        learner.layout.mask("head")
    if learner.layout.has_batchnorm and config.train.batch_size == 1:
        raise ConfigError("train.batch_size = 1: the model has BatchNorm layers, which need 2 or more samples a batch")
    if not learner.layout.size:
        raise ConfigError(f"model {config.model.name} has no trainable parameters")
    with as_config_error(f"method {config.method.name} fails"):
        method = make_method(run, context)
        doubts = method_warnings(method, config.method.name)
        check_privacy(config, method)
        check_compression(config.compression, method, config.method.name)
        check_attack(config.attack, method, config.method.name)
        attackers(seed, context.clients, config.attack)
    if method.makes_steps(method.options) and config.train.engine == "trainer":
        raise ConfigError(
            f"train.engine = trainer: {config.method.name} makes steps of its own, which lightning.Trainer does not "
            "support; leave it out"
        )
    _check_gradients(config, method, learner)
    held = ClientData(config, dataset, partition, learner.device, learner.dtype)
    data, test = (held.split([0], part, (seed, 0, 0)) for part in ("train", "test"))
    doubts = [*doubts, *probe(learner, data, dataset.outputs)]
    probe_metrics(learner, test)
    if config.evaluate.module_metrics:
        probe_logged(learner, test)
    for line in doubts:
        say(line)
    return method


def _check_gradients(config: Config, method: Method, learner: Learner) -> None:
    """Refuses to clip or accumulate gradients of steps that fedbench does not make."""
    train, kind = config.train, type(learner.module).__name__
    keys = [f"train.clip_norm = {train.clip_norm:g}"] if train.clip_norm is not None else []
    keys += [f"train.accumulate = {train.accumulate}"] if train.accumulate > 1 else []
    if keys and method.makes_steps(method.options):
        raise ConfigError(f"{keys[0]}: {config.method.name} makes gradient steps of its own; leave it out")
    if keys and not learner.module.automatic_optimization:
        raise ConfigError(f"{keys[0]}: {kind} optimises manually; leave it out, and do this in its training_step")
    if train.accumulate > 1 and learner.optimizer_reevaluates:
        raise ConfigError(f"{keys[-1]}: the optimiser of {kind} evaluates a batch several times per step; leave it out")


def _train_defaults(config: Config, kind: type[Method]) -> None:
    """Apply a method's own defaults to keys that the user did not set."""
    given = config.train.model_fields_set
    for key, value in kind.train_defaults.items():
        if key not in given:
            setattr(config.train, key, value)
    if "epochs" in kind.needs and config.train.steps:
        raise ConfigError(
            f"train.steps: {config.method.name} names its own epochs and takes no local steps; leave it out"
        )


def model_defaults(config: Config, shape: tuple[int, ...]) -> None:
    """Fills in the defaults of a model and its training, for samples of this shape. Raises ConfigError."""
    if config.model.name == "auto":
        config.model.name = models.resolve_model("auto", shape)
        if usual := getattr(models.load(config.model.name), "auto_options", {}):
            config.model = type(config.model)(**usual | config.model.model_dump())
    config.model.name = ",".join(models.resolve_model(name, shape) for name in config.model.names)
    kinds = {name: models.load(name) for name in config.model.names}
    if config.model.weights and len(kinds) > 1:
        raise ConfigError(f"model.weights = {config.model.weights}: clients have models of their own; leave it out")
    for key in models.SHAPE:
        if key in config.model.options:
            raise ConfigError(f"model.{key}: decided by the data ({config.data.name}); leave it out")
    if config.train.optimizer == "auto":
        config.train.optimizer = _usual_optimizer(config.model.names)
    for name, kind in kinds.items():
        _check_steps(config, name, kind)
    if config.train.memory_format == "auto":
        device = "cuda" if config.resources.gpus_per_host else "cpu"
        fast = all(device in getattr(kind, "channels_last", ()) for kind in kinds.values())
        config.train.memory_format = "channels_last" if fast else "contiguous"


def _usual_optimizer(names: Sequence[str]) -> Literal["module", "sgd"]:
    """The optimiser of models: their own if they are the user's. Raises ConfigError if only some are."""
    users = [name for name in names if models.MODELS.path(name)]
    if users and len(users) < len(names):
        raise ConfigError(
            f"model: {users[0]} has an optimiser of its own, and fedbench's models have none: choose one for all, for "
            "example --train.optimizer sgd"
        )
    return "module" if users else "sgd"


def _check_steps(config: Config, name: str, kind: type[LightningModule]) -> None:
    """Checks the required methods of a LightningModule, with clearer errors than Lightning's."""
    if kind.training_step is LightningModule.training_step:
        raise ConfigError(f"model {name} has no training_step(self, batch, batch_idx) that returns the loss")
    if kind.forward is LightningModule.forward:
        raise ConfigError(f"model {name} has no forward(self, x) that returns the outputs, such as class scores")
    if config.train.optimizer == "module" and kind.configure_optimizers is LightningModule.configure_optimizers:
        raise ConfigError(f"model {name} has no configure_optimizers: write one, or choose with --train.optimizer sgd")


def choose_hosts(config: Config) -> None:
    """Choose the number of hosts and their share of a GPU if left open.

    hosts = auto fills the machine: one host per core or two per GPU, but never more than participants. On a cluster,
    its free resources count instead of this machine's, and clients are never in this process.
    """
    resources = config.resources
    if resources.hosts == "auto" and resources.address == "local" and missing("ray"):
        log.info(f"hosts = auto: in this process, because Ray is not installed ({install('ray')})")
        resources.hosts = 0
    if "auto" not in (resources.hosts, resources.gpus_per_host):
        return
    clustered = resources.address != "local"
    offer = cluster.cluster_offer(resources.address) if clustered else this_machine()
    if resources.hosts == "auto":
        most = _most_hosts(offer, resources.cpus_per_host)
        taking_part = count_of(config.partition.trained_clients, config.participation)
        resources.hosts = 0 if most < 2 and not clustered else max(1, min(most, taking_part))
    if resources.gpus_per_host == "auto":
        hosts = max(1, int(resources.hosts))
        resources.gpus_per_host = share_of_gpu(offer.machines, resources.cpus_per_host, hosts)


def this_machine() -> cluster.Offer:
    """The cores and GPUs of this machine."""
    here = {"CPU": float(cores()), "GPU": float(torch.cuda.device_count())}
    return cluster.Offer(here, [here])


def _most_hosts(offer: cluster.Offer, cpus: float) -> int:
    """Two per free GPU if the cluster has any, else one per free core."""
    if on_gpus := room_on_gpus(offer.machines, cpus, 2):
        return min(on_gpus, 2 * int(offer.free.get("GPU", 0)))
    return int(offer.free.get("CPU", 0) / cpus)


def _check_sizes(run: ResolvedRun) -> None:
    config = run.config
    clients, newcomers = config.partition.trained_clients, config.partition.clients - config.partition.trained_clients
    there = f"there are {clients} clients" + (f" beside the {newcomers} that join later" if newcomers else "")
    if config.participation > clients:
        raise ConfigError(f"participation = {config.participation:g}: {there}; take at most that many")
    if config.evaluate.clients is None and clients > MOST_EVALUATED:
        config.evaluate.clients = MOST_EVALUATED
    if isinstance(config.evaluate.clients, int) and config.evaluate.clients > clients:
        raise ConfigError(f"evaluate.clients = {config.evaluate.clients}: {there}; take at most that many, or all")
    if config.resources.hosts != "auto" and config.resources.hosts > clients:
        raise ConfigError(
            f"resources.hosts = {config.resources.hosts}: {there}, and a host works for at least one; take at most "
            f"{clients}"
        )
    usual = EvaluateConfig()
    for key in ("new_clients_epochs", "new_clients_samples"):
        if not newcomers and getattr(config.evaluate, key) != getattr(usual, key):
            raise ConfigError(f"evaluate.{key}: no client joins after the last round; set partition.new_clients")
    if "public" in run.method.needs and not config.public.size:
        raise ConfigError(
            f"method {config.method.name} needs a public unlabelled set: set public.size, for example --public.size 300"
        )


def _check_task(run: ResolvedRun) -> None:
    config, dataset = run.config, run.dataset
    hint = ", or say data.kind = image" if ":" in config.data.name and len(dataset.shape) == 3 else ""
    if config.data.augment and not dataset.holds_images:
        line = f"data.augment = {config.data.augment}: {config.data.name} holds no images; leave it out{hint}"
        raise ConfigError(line)
    for what, count in (("class", dataset.classes), ("domain", len(dataset.domain_names))):
        if what in config.evaluate.by and not count:
            raise ConfigError(f"evaluate.by = {what}: data {config.data.name} has no such groups; leave it out")
    if dataset.classes == 1:
        (only,) = dataset.class_names or ("0",)
        name = config.data.name
        hint = f"; write {name}/{only} if its folders are the classes" if name.startswith("folder:") else ""
        raise ConfigError(f"data {name}: all samples are of one class ({only}), two or more are needed{hint}")
    if reason := run.task.refusal(dataset.samples[:FEW_SAMPLES], dataset.targets[:FEW_SAMPLES]):
        raise ConfigError(f"data {config.data.name}: {reason}")
    if "classes" in run.method.needs and not dataset.classes:
        raise ConfigError(
            f"method {config.method.name} works with classes, and the targets of data {config.data.name} are "
            f"{dataset.meaning}; use another one: `fedbench methods NAME` shows what a method needs"
        )
