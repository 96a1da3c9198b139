"""The configuration tree, with every default, range and unit.

A method's own options are in its file (`Method.Options`) and appear here as `method.<option>`. Constructor arguments
of a model or data source are `model.<argument>` and `data.<argument>`.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from fedbench.config.counts import newcomer_count
from fedbench.config.execution import CheckpointConfig, ResourcesConfig, WandbConfig, make_absolute
from fedbench.config.fleet import AttackConfig, CompressionConfig, PrivacyConfig, StragglersConfig
from fedbench.config.section import OpenSection, PositiveInt, RootSection, Section, Seed, distinct
from fedbench.errors import ConfigError
from fedbench.user_code import name_of, objects_to_send, receive_objects
from fedbench.user_code.given_data import given_data, with_data_name
from fedbench.user_code.given_model import with_model_name

MOST = 10_000_000
"""Clients and rounds, of which more are a slip of the keyboard and would fill the memory."""
NEW_CLIENTS_EPOCHS, NEW_CLIENTS_SAMPLES = [0, 1, 2, 5, 10], [1, 5, 20]
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The C dumper is seven times as fast, and every run writes its configuration."""
LOGGING = ("loggers", "log_clients", "wandb")
YOUNGER = (
    ("", "save_predictions", False),
    ("evaluate", "module_metrics", False),
    ("evaluate", "common_test", False),
    ("train", "lr_scale", 1.0),
    ("train", "clip_norm", None),
    ("train", "accumulate", 1),
    ("partition", "new_clients", 0),
    ("partition", "test_by", None),
    ("partition", "order_by", None),
    ("evaluate", "new_clients_epochs", NEW_CLIENTS_EPOCHS),
    ("evaluate", "new_clients_samples", NEW_CLIENTS_SAMPLES),
    ("", "dropout", 0.0),
    ("", "stragglers", StragglersConfig().model_dump()),
    ("", "attack", AttackConfig().model_dump()),
    ("", "compression", CompressionConfig().model_dump()),
    ("", "privacy", PrivacyConfig().model_dump()),
    ("privacy", "level", "client"),
)
"""Section, key and default of options that do not count by default, so that earlier results keep their names."""


class MethodConfig(OpenSection):
    name: str = Field("fedavg", description="method: a name from `fedbench methods`, or package.module:Class")

    @model_validator(mode="before")
    @classmethod
    def _no_instance(cls, value: Any) -> Any:
        kind = type(value.get("name") if isinstance(value, Mapping) else value)
        if any(base.__module__ == "fedbench.methods.base" for base in kind.__mro__):
            raise ConfigError(f"method is an instance of {kind.__name__}; pass the class {kind.__name__} itself")
        return value


class DataConfig(OpenSection):
    """In Python also accepts data as objects, such as `(X, y)`; the name identifies their content (docs/data.md)."""

    name: str = Field(
        "digits",
        description="data set: a name from `fedbench data --help`, parquet:PATH, folder:PATH, or "
        "package.module:factory",
    )
    root: Path | None = Field(None, description="folder with the data set's published files (default: the cache)")
    task: str = Field(
        "auto",
        description="task: a name from `fedbench run --help`, or package.module:TASK; auto: classification, multilabel "
        "or regression, chosen by the targets",
    )
    content: str | None = Field(
        None,
        description="hash of your own data, part of the run's identity; filled in automatically",
    )
    val: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of each client's training samples held out for validation, unless the data have a "
        "validation part; 0: no validation, such a part is used for training",
    )
    mean: list[float] = Field([], description="mean of pixels in [0, 1], one or per channel; empty: the set's own")
    std: list[Annotated[float, Field(gt=0)]] = Field([], description="standard deviation, likewise")
    augment: list[Literal["flip", "rotate", "crop"]] = Field(
        [], description="augmentation of training images: flip (left-right), rotate, crop (from a black frame)"
    )
    crop_padding: PositiveInt = Field(4, description="width of the frame for crop, in pixels")
    rotate_degrees: float = Field(15.0, gt=0, le=180, description="maximum angle of rotate")

    @model_validator(mode="before")
    @classmethod
    def _from_objects(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        named = with_data_name(value, cls.model_fields)
        if isinstance(named, dict) and isinstance(named.get("collate"), FunctionType):
            return {**named, "collate": name_of(named["collate"])}
        return named

    @field_validator("task", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return name_of(value) if isinstance(value, type) else value


class PartitionConfig(OpenSection):
    """Keys that several schemes use; a scheme may add its own."""

    name: str = Field("dirichlet", description="partition scheme: a name from `fedbench data --help`")
    clients: PositiveInt = Field(10, le=MOST, description="number of clients")
    new_clients: Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] = Field(
        0,
        description="of these, how many take no part in training and join after the last round: a count, or a share "
        "below 1; drawn by the seed",
    )
    classes: PositiveInt = Field(2, description="classes per client")
    deal: Literal["even", "shuffled", "random"] = Field(
        "even",
        description="how classes are assigned to clients: even: each class equally often, no duplicates per client; "
        "shuffled: duplicates are possible; random: each client draws its own",
    )
    images: PositiveInt | None = Field(None, description="training samples per class and client; none: all")
    test_images: PositiveInt | None = Field(None, description="test samples per class and client; none: all")
    reuse: bool = Field(
        False,
        description="share samples between clients if there are too few, but never between train and test",
    )
    alpha: float = Field(0.5, gt=0, description="concentration per class")
    min_images: int = Field(10, ge=1, description="fewest samples per client, all its parts: drawn again below it")
    train_size: PositiveInt | None = Field(
        None, description="training samples per client; none: all, or as many as the scheme says"
    )
    test_size: PositiveInt | None = Field(
        None, description="test samples per client; none: all, or as many as the scheme says; 100 if test = drawn"
    )
    total: PositiveInt | None = Field(
        None, description="total number of samples of the train part (of all, if parts are merged); none: all"
    )
    test: Literal["auto", "part", "stratified", "last", "pooled", "drawn"] = Field(
        "auto",
        description="test samples: part: the data set's test part; stratified: of all samples the seed draws "
        "test_share, by class within each client; last: the last test_share of each client, by order_by or the order "
        "of rows, and the same for validation; pooled: both parts merged, and test_share held out as published "
        "partitions do; drawn: test_size of the test part in each client's class proportions (dirichlet, practical); "
        "auto: stratified if the data have one part (pooled for fedbench's own sets), pooled for dirichlet and "
        "practical, else part",
    )
    test_share: float = Field(
        0.25, gt=0, lt=1, description="share of test samples if parts are merged; by default 0.2 if stratified or last"
    )
    test_by: str | None = Field(
        None,
        description="column or key, such as the patient, whose samples of one value are never both for training and "
        "for validation or testing; it is no feature; domain: that of the sample, such as its user (test = stratified)",
    )
    order_by: str | None = Field(
        None,
        description="column or key, such as the date, by which samples are the last; it is no feature; none: the order "
        "of rows (test = last)",
    )
    max_draws: PositiveInt = Field(10_000, description="maximum number of draws of a partition")
    path: Path | None = Field(
        None, description="file with the rows of each client: a run's partition.json or partition.npz"
    )
    seed: Seed | None = Field(None, description="seed of the partition; none: the run's seed")
    flip_clients: list[int] = Field(
        [], description="clients to whom labels mean something else, in tests too: c is (c + 1) mod classes"
    )
    noise_clients: list[int] = Field([], description="clients with wrong labels in training and validation")
    noise_rate: float = Field(0.2, ge=0, le=1, description="share of wrong labels of noise_clients")

    _absolute = field_validator("path")(make_absolute)

    @property
    def trained_clients(self) -> int:
        """The number of clients that are no newcomers."""
        return self.clients - newcomer_count(self.clients, self.new_clients)


class PublicConfig(Section):
    size: int = Field(0, ge=0, description="unlabelled public samples, taken from the train part before partitioning")
    balance: Literal["classes", "domains", "dirichlet", "none"] = Field(
        "classes",
        description="classes: equally many of each; domains: of each domain and class; dirichlet: classes skewed by "
        "alpha; none: any samples",
    )
    alpha: float = Field(0.5, gt=0, description="Dirichlet concentration per class if balance = dirichlet")
    reserve: PositiveInt | None = Field(
        None, description="samples withheld from clients, including the public set; none: size"
    )


class ModelConfig(OpenSection):
    """Also accepts LightningCLI's `class_path: pkg.mod.Net` and `init_args: {...}`, and in Python an instance.

    An instance is taken as it is: every client starts from its weights, for every seed. A list of models is dealt to
    the clients in turn, and is kept as their names with commas between them.
    """

    name: str = Field(
        "auto",
        description="model: a name from `fedbench run --help`, or package.module:Class of a LightningModule; auto: "
        "avgcnn, or mlp for images below 16 pixels a side; A,B: clients get A and B in turn",
    )
    head: str | None = Field(None, description="dotted name of the classifier submodule (default: the model's own)")
    weights: Path | None = Field(
        None,
        description="file with the initial state dict of every client (torch.save, safetensors, or a Lightning "
        "checkpoint); on a cluster, a path that all machines can read",
    )

    _absolute = field_validator("weights")(make_absolute)

    @model_validator(mode="before")
    @classmethod
    def _from_class_path(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "class_path" not in value:
            return value
        named = dict(value)
        path, arguments = str(named.pop("class_path")), named.pop("init_args", None) or {}
        return {"name": ":".join(path.rsplit(".", 1)), **arguments, **named}

    @model_validator(mode="before")
    @classmethod
    def _from_instance(cls, value: Any) -> Any:
        return with_model_name(value)

    @property
    def names(self) -> list[str]:
        """The n models by name: client c has number c mod n of them."""
        return self.name.split(",")

    def alone(self, name: str) -> "ModelConfig":
        """The section with one of its models for all clients."""
        return self.model_copy(update={"name": name})


class TrainConfig(Section):
    optimizer: Literal["auto", "module", "sgd", "adam", "adamw"] = Field(
        "auto",
        description="module: the LightningModule's configure_optimizers; auto: sgd for built-in models, else module",
    )
    lr: float = Field(0.01, gt=0, description="learning rate of sgd, adam and adamw")
    lr_scale: float = Field(
        1.0,
        gt=0,
        description="factor of all learning rates of the LightningModule's own optimiser; its schedulers act on top",
    )
    momentum: float = Field(0.5, ge=0, lt=1, description="heavy-ball momentum of sgd")
    weight_decay: float = Field(5e-4, ge=0, description="coupled weight decay")
    clip_norm: float | None = Field(
        None, gt=0, description="largest norm of the gradient of a step, which is scaled down to it; none: no clipping"
    )
    lr_decay: float = Field(1.0, gt=0, le=1, description="learning rates of round t are multiplied by lr_decay^(t-1)")
    batch_size: PositiveInt | Literal["full"] = Field(50, description="samples per gradient step, or full")
    accumulate: PositiveInt = Field(
        1,
        description="batches per step of the optimiser, by their mean gradient; the rest of an epoch makes one too; "
        "steps are counted in batches",
    )
    epochs: int = Field(5, ge=0, description="local epochs per round")
    steps: PositiveInt | None = Field(None, description="local gradient steps per round, instead of epochs")
    shuffle: bool = Field(True, description="shuffle a client's samples every epoch")
    keep_optimizer: bool = Field(
        False, description="keep the client's optimiser state and learning-rate schedule across rounds"
    )
    precision: Literal["32-true", "64-true", "bf16-mixed"] = Field(
        "32-true", description="arithmetic precision of training"
    )
    memory_format: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto", description="memory layout of images and convolutions; auto: by model and device"
    )
    engine: Literal["auto", "loop", "graph", "compiled", "trainer"] = Field(
        "auto",
        description="loop: fedbench's own loop; graph: replays steps as CUDA graphs, several clients at a time, with "
        "the bits of the loop; auto: graph on a GPU, else loop; compiled: one compiled step of several clients, for "
        "tiny models on a processor; trainer: lightning.Trainer, slower, for modules that need it",
    )
    width: int = Field(10, ge=1, le=1000, description="clients that a host trains at a time (graph, compiled)")
    threads: PositiveInt = Field(1, description="torch threads per host")

    def decay(self, round: int) -> float:
        """The factor of all learning rates in a round, from 1."""
        return self.lr_decay ** max(0, round - 1)


class AggregatorConfig(OpenSection):
    name: str = Field(
        "mean",
        description="aggregator, for methods that average: a name from `fedbench run --help`, or "
        "package.module:function",
    )


class EvaluateConfig(Section):
    every: PositiveInt = Field(1, description="evaluate every N rounds and after the last")
    batch_size: PositiveInt = Field(500, description="samples per evaluation batch")
    clients: PositiveInt | Literal["all"] | None = Field(
        None, description="evaluate a fixed random sample of N clients, or all; none: all, or 1000 if there are more"
    )
    accuracy: Literal["samples", "batches"] = Field(
        "samples", description="average accuracy over samples or over batches"
    )
    metrics: list[str] = Field(
        [],
        description="additional metrics: balanced_accuracy, f1_macro, auroc, top5, or package.module:NAME of a "
        "function or a class of torchmetrics",
    )
    metric: str | None = Field(
        None, description="primary metric, for choosing candidates, tables and reports; none: the task's first"
    )
    module_metrics: bool = Field(
        False,
        description="also record what the module logs in its test_step, else its validation_step, per client, in "
        "clients.parquet",
    )
    common_test: bool = Field(
        False,
        description="also evaluate every model on the test samples of all clients together; takes as many times longer "
        "as there are clients",
    )
    new_clients_epochs: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = Field(
        NEW_CLIENTS_EPOCHS,
        description="local epochs after which newcomers (partition.new_clients) are evaluated, each from the start",
    )
    new_clients_samples: list[PositiveInt] = Field(
        NEW_CLIENTS_SAMPLES,
        description="also evaluate newcomers that have only so many training samples, drawn at random, after the most "
        "of these epochs",
    )
    by: list[Literal["class", "domain"]] = Field(
        [], description="also record test scores per class (as the client sees it) and per domain, in clients.parquet"
    )

    @field_validator("metrics", "metric", mode="before")
    @classmethod
    def _names_of_functions(cls, value: Any) -> Any:
        """In Python a metric may be the function itself."""
        if isinstance(value, list | tuple):
            return [cls._names_of_functions(item) for item in value]
        if isinstance(value, type | FunctionType):
            return name_of(value)
        if callable(value):
            raise ValueError("must be a name, a function or a class; write a function that calls this object")
        return value


class Config(RootSection):
    """A validated configuration, which the commands build from their flags.

    >>> config = Config(method="fedprox", rounds=50, train={"lr": 0.05})
    >>> config.method.name, config.train.lr, config.train.epochs
    ('fedprox', 0.05, 5)
    """

    method: MethodConfig = MethodConfig()
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    public: PublicConfig = PublicConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    rounds: int = Field(60, ge=1, le=MOST, description="communication rounds")
    participation: float = Field(1.0, gt=0, description="share of clients per round in (0, 1], or a count >= 2")
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of participants whose upload is lost, drawn by round and client; what they keep, such as a "
        "personal model, stays",
    )
    stragglers: StragglersConfig = StragglersConfig()
    attack: AttackConfig = AttackConfig()
    compression: CompressionConfig = CompressionConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    aggregator: AggregatorConfig = AggregatorConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    seeds: list[Seed] = Field(
        [0],
        min_length=1,
        description="random seeds, one run each: partition, initial weights, batches; for grid and compare, seeds of "
        "the final runs (default 0 to 9)",
    )
    resources: ResourcesConfig = ResourcesConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    keep_results: bool = Field(
        False, description="reuse results even if your code of the method, model, data or aggregator has changed"
    )
    save_models: bool = Field(
        False,
        description="save the last personal model of every evaluated client, at both evaluation points, and the global "
        "or shared one, as safetensors",
    )
    save_predictions: bool = Field(
        False,
        description="save the outputs of every evaluated client's model on its test samples, at both evaluation "
        "points, for `fedbench metrics`",
    )
    loggers: list[str] = Field([], description="wandb, csv, tensorboard, or package.module:Class of a Lightning Logger")
    log_clients: bool = Field(
        False, description="also give loggers a curve per client: its primary metric on test, at every evaluation point"
    )
    wandb: WandbConfig = WandbConfig()
    name: str | None = Field(None, description="name of the run; none: generated from the configuration")
    out: Path | None = Field(None, description="folder for the results; none: results/<experiment>/<name>")

    @model_validator(mode="after")
    def _clients_of_the_data(self) -> "Config":
        """Data that come by client keep their clients unless a partition is named."""
        given = given_data(self.data.name)
        if given and given.by_client and "name" not in self.partition.model_fields_set:
            keys = {key: getattr(self.partition, key) for key in self.partition.model_fields_set}
            self.__dict__["partition"] = PartitionConfig(**{**keys, "name": "natural"})
        return self

    @field_validator("participation")
    @classmethod
    def _share_or_count(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("must be a share in (0, 1] or a whole count >= 2")
        return value

    _distinct = field_validator("seeds", "loggers")(distinct)

    @field_validator("name")
    @classmethod
    def _one_folder(cls, value: str | None) -> str | None:
        return value if value is None else folder_name(value)

    @classmethod
    def of(cls, given: "Config | Mapping[str, Any]") -> "Config":
        """Returns the Config, built from a mapping of keys if necessary. Raises ConfigError."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            what = f"{type(given).__name__} {given!r}" if isinstance(given, str) else type(given).__name__
            hint = "; a method is a key of it, Config(method=...)" if isinstance(given, str | type) else ""
            raise ConfigError(f"expected a Config or a dict of its keys first, not {what}{hint}")
        return cls(**given)

    def __getstate__(self) -> dict[Any, Any]:
        """Includes classes and functions that only this process has, for the receiving process."""
        names = [str(section.name) for section in (self.method, self.data, self.aggregator)]
        names += [*self.model.names, self.data.task, *self.evaluate.metrics, *filter(None, [self.evaluate.metric])]
        names += filter(None, [self.data.options.get("collate")])
        return {**super().__getstate__(), "objects": objects_to_send(names)}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        receive_objects(state.pop("objects"))
        super().__setstate__(state)

    def given(self) -> dict[str, Any]:
        """The keys that were set, as a tree: at construction or later, as by `config.train.lr = 0.1`."""
        sections = {name: value for name in Config.model_fields if isinstance(value := getattr(self, name), Section)}
        later = {name: section.model_dump(mode="json", exclude_unset=True) for name, section in sections.items()}
        return self.model_dump(mode="json", exclude_unset=True) | {name: part for name, part in later.items() if part}

    def decisive(self) -> dict[str, Any]:
        """The keys that affect the numbers: all but seeds, output, loggers, checkpoints and resources.

        The user's code and data affect them too, and are identified by their content.
        """
        tree = self.model_dump(mode="json")
        del tree["data"]["content"]
        for key in (*LOGGING, "seeds", "resources", "checkpoint", "keep_results", "name", "out"):
            del tree[key]
        for section, key, default in YOUNGER:
            held = tree.get(section, {}) if section else tree
            if key in held and held[key] == default:
                del held[key]
        if tree["train"]["engine"] in ("auto", "loop", "graph"):  # with the same bits
            tree["train"].update(engine="loop", width=TrainConfig().width)
        return tree

    def key(self) -> str:
        """Twelve hexadecimal digits that identify the configuration without its seeds."""
        return hashlib.sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()[:12]

    def to_yaml(self) -> str:
        """The configuration as YAML, without keys that concern this command only."""
        return str(yaml.dump(self.model_dump(mode="json", exclude={"keep_results"}), Dumper=DUMPER, sort_keys=False))


def folder_name(value: str) -> str:
    """Checks that a name is a single folder name. Raises ValueError."""
    if value in ("", ".", "..") or "/" in value or not value.isprintable():
        raise ValueError("must be the name of one folder, without / and line breaks; use --out for a path")
    return value
