"""The whole configuration tree: every default, range and unit lives here.

A method's own options live in its file (`Method.Options`) and appear here as `method.<option>`; a model's or a data
source's constructor arguments appear as `model.<argument>` and `data.<argument>`.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from fedbench.config.section import OpenSection, PositiveInt, Section, Seed
from fedbench.config.words import explain
from fedbench.errors import ConfigError
from fedbench.user_code import objects_to_send, receive_objects


def absolute(value: Path | None) -> Path | None:
    """Processes of a cluster work in other directories."""
    return value and value.expanduser().absolute()


class MethodConfig(OpenSection):
    name: str = Field("fedavg", description="method to run: a name of `fedbench methods`, or package.module:Class")


class DataConfig(OpenSection):
    name: str = Field(
        "digits",
        description="data set: a name of `fedbench data --help`, parquet:PATH, folder:PATH, or package.module:factory",
    )
    root: Path | None = Field(None, description="folder with the data set's published files (default: the cache)")
    task: Literal["auto", "classification", "multilabel", "regression"] = Field(
        "auto", description="what is learnt: one class, several labels at once, or numbers; auto: what the targets are"
    )
    content: str | None = Field(
        None,
        description="hash of what was read of data of your own, by which a run is known; filled in where not given",
    )
    val: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of each client's training images held out for validation, unless the data have a validation "
        "part; 0: none, and such a part is trained on",
    )
    mean: list[float] = Field([], description="mean of pixels in [0, 1], per channel or for all; empty: the set's own")
    std: list[Annotated[float, Field(gt=0)]] = Field([], description="deviation, likewise")
    augment: list[Literal["flip", "rotate", "crop"]] = Field(
        [], description="random changes of training images: flip (left, right), rotate, crop (from a black frame)"
    )
    crop_padding: PositiveInt = Field(4, description="width of the frame for crop, in pixels")
    rotate_degrees: float = Field(15.0, gt=0, le=180, description="largest angle of rotate")


class PartitionConfig(OpenSection):
    """What several schemes read stands here; a scheme may have further keys of its own."""

    name: str = Field(
        "dirichlet", description="how the images are dealt to the clients: a scheme of `fedbench data --help`"
    )
    clients: PositiveInt = Field(10, description="number of clients")
    classes: PositiveInt = Field(2, description="classes per client")
    deal: Literal["even", "shuffled", "random"] = Field(
        "even",
        description="classes of the clients: even: each class equally often, none twice at a client; shuffled: a "
        "client may get one twice; random: each client draws its own",
    )
    images: PositiveInt | None = Field(None, description="training images per class and client; none: all")
    test_images: PositiveInt | None = Field(None, description="test images per class and client; none: all")
    reuse: bool = Field(
        False,
        description="deal images to several clients where there are too few for all, never one in both parts",
    )
    alpha: float = Field(0.5, gt=0, description="concentration per class")
    min_images: int = Field(10, ge=1, description="fewest images per client, all its parts: drawn again below it")
    train_size: PositiveInt | None = Field(
        None, description="training images per client; none: all, or as many as the scheme says"
    )
    test_size: PositiveInt | None = Field(
        None, description="test images per client; none: all, or as many as the scheme says; 100 where test = drawn"
    )
    total: PositiveInt | None = Field(
        None, description="images to deal in all, of the train part (pooled: of both); none: all there are"
    )
    test: Literal["auto", "part", "pooled", "drawn"] = Field(
        "auto",
        description="test images: part: the data set's test part; pooled: both parts merged, test_share of the images "
        "held out; drawn: test_size of the test part in each client's class proportions (dirichlet, practical); auto: "
        "pooled for dirichlet and practical and where one part is empty, else part",
    )
    test_share: float = Field(0.25, gt=0, lt=1, description="share of test images where test = pooled")
    max_draws: PositiveInt = Field(10_000, description="draws before a partition is given up")
    path: Path | None = Field(
        None, description="file that says who holds which rows: a run's partition.json or partition.npz"
    )
    seed: Seed | None = Field(None, description="seed of the partition; none: the run's seed")
    flip_clients: list[int] = Field([], description="clients whose labels are permuted, c -> (c + 1) mod classes")
    noise_clients: list[int] = Field([], description="clients with wrong labels among training and validation images")
    noise_rate: float = Field(0.2, ge=0, le=1, description="share of wrong labels at noise_clients")

    _absolute = field_validator("path")(absolute)


class PublicConfig(Section):
    size: int = Field(0, ge=0, description="unlabelled public images, taken from the train part before partitioning")
    balance: Literal["classes", "domains", "dirichlet", "none"] = Field(
        "classes",
        description="classes: equally many of each; domains: of each domain and class; dirichlet: classes skewed by "
        "alpha; none: any images",
    )
    alpha: float = Field(0.5, gt=0, description="concentration per class where balance = dirichlet")
    reserve: PositiveInt | None = Field(
        None, description="images kept from the clients, of which the public set is a part; none: size"
    )


class ModelConfig(OpenSection):
    """A class may be written as LightningCLI writes it: `class_path: pkg.mod.Net` and `init_args: {...}`."""

    name: str = Field(
        "auto",
        description="mlp, avgcnn, resnet8, resnet10, resnet18, alexnet, vit, or package.module:Class of a "
        "LightningModule; auto: avgcnn, or mlp for images of less than 16 pixels a side",
    )
    head: str | None = Field(None, description="dotted name of the classifier submodule (default: the model's own)")
    weights: Path | None = Field(
        None,
        description="file with a state dict that every client starts from (torch.save, safetensors, or a checkpoint of "
        "Lightning); on a cluster, where all machines see it",
    )

    _absolute = field_validator("weights")(absolute)

    @model_validator(mode="before")
    @classmethod
    def _from_class_path(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "class_path" not in value:
            return value
        named = dict(value)
        path, arguments = str(named.pop("class_path")), named.pop("init_args", None) or {}
        return {"name": ":".join(path.rsplit(".", 1)), **arguments, **named}


class TrainConfig(Section):
    optimizer: Literal["auto", "module", "sgd", "adam", "adamw"] = Field(
        "auto",
        description="module: the LightningModule's configure_optimizers; auto: sgd for built-in models, else module",
    )
    lr: float = Field(0.01, gt=0, description="learning rate")
    momentum: float = Field(0.5, ge=0, lt=1, description="heavy-ball momentum of sgd")
    weight_decay: float = Field(5e-4, ge=0, description="coupled weight decay")
    lr_decay: float = Field(1.0, gt=0, le=1, description="every learning rate in round t is times lr_decay^(t-1)")
    batch_size: PositiveInt | Literal["full"] = Field(50, description="images per gradient step, or full")
    epochs: int = Field(5, ge=0, description="local epochs per round")
    steps: PositiveInt | None = Field(None, description="local gradient steps per round, instead of epochs")
    shuffle: bool = Field(True, description="shuffle a client's images every epoch")
    keep_optimizer: bool = Field(
        False, description="keep optimiser state at the client across rounds, and the place of a model's schedule"
    )
    precision: Literal["32-true", "64-true", "bf16-mixed"] = Field("32-true", description="arithmetic of training")
    memory_format: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto", description="layout of images and convolutions; auto: by model and device"
    )
    engine: Literal["loop", "stack", "trainer"] = Field(
        "loop",
        description="loop: fedbench's own; stack: the same for several clients in one step, faster for tiny models; "
        "trainer: lightning.Trainer, slower, for modules that need it",
    )
    width: int = Field(10, ge=1, le=1000, description="clients in one step (engine = stack)")
    threads: PositiveInt = Field(1, description="torch threads per host")


class AggregatorConfig(OpenSection):
    name: str = Field(
        "mean",
        description="how the server makes one model of those of a round, where the method averages: a name that "
        "`fedbench run --help` lists, or package.module:function",
    )


class EvaluateConfig(Section):
    every: PositiveInt = Field(1, description="evaluate every so many rounds, and always after the last")
    batch_size: PositiveInt = Field(500, description="images per evaluation batch")
    clients: PositiveInt | Literal["all"] | None = Field(
        None, description="evaluate a fixed random sample of so many clients, or all; none: all, or 1000 of more"
    )
    accuracy: Literal["samples", "batches"] = Field("samples", description="mean over images, or over batches")
    metrics: list[str] = Field(
        [],
        description="further metrics of every client: balanced_accuracy, f1_macro, auroc, top5, or "
        "package.module:function",
    )
    metric: str | None = Field(
        None, description="metric by which points are chosen, and tables and pages go; none: the first of the task"
    )
    by: list[Literal["class", "domain"]] = Field(
        [], description="test scores of each class (as the client sees it) and each domain too, in clients.parquet"
    )


class ResourcesConfig(Section):
    hosts: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="client host processes; 0: run in the calling process without Ray; auto: fill the machine, or what "
        "the cluster has free; on one machine 0 where the whole run is less work than the start of Ray",
    )
    cpus_per_host: float = Field(1, gt=0, description="CPU cores reserved per host")
    gpus_per_host: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="fraction of a GPU per host; auto: by hosts and GPUs"
    )
    address: str = Field("local", description="Ray cluster to join: local, auto, or host:port")
    strategy: Literal["pack", "spread"] = Field(
        "pack", description="hosts on as few machines of the cluster as have room for them, or on as many"
    )
    states: Literal["auto", "memory", "disk"] = Field(
        "auto",
        description="private states of clients between rounds: in their host's memory, or in files; auto: files where "
        "hosts are processes of their own, so that a host's death costs no state, and where they may exceed 1 GB",
    )
    scratch: Path | None = Field(
        None,
        description="folder for these files and for messages; none: shared memory, or /tmp where that is small, and "
        "for states that may exceed 1 GB",
    )


class CheckpointConfig(Section):
    every: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="rounds between checkpoints; auto: as often as they take a twentieth of the time at most; 0: none",
    )


def _variable(name: str, otherwise: str | None = None) -> Callable[[], str | None]:
    """A default that an environment variable of W&B's sets."""
    return lambda: os.environ.get(name) or otherwise


class WandbConfig(Section):
    project: str = Field(
        default_factory=cast(Callable[[], str], _variable("WANDB_PROJECT", "fedbench")),
        description="W&B project, or by WANDB_PROJECT",
    )
    entity: str | None = Field(
        default_factory=_variable("WANDB_ENTITY"), description="W&B team or user, or by WANDB_ENTITY"
    )
    group: str | None = Field(
        default_factory=_variable("WANDB_RUN_GROUP"),
        description="W&B group, or by WANDB_RUN_GROUP; none: the study's name, for a run data set and partition",
    )
    run_name: str | None = Field(
        default_factory=_variable("WANDB_NAME"),
        description="what names of W&B runs begin with, before method and seed, or by WANDB_NAME",
    )
    tags: list[str] = Field(
        default_factory=lambda: [tag for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag],
        description="W&B tags, or by WANDB_TAGS",
    )
    mode: Literal["auto", "online", "offline"] = Field("auto", description="auto: online with an account, else offline")


class Config(Section):
    """A validated request. `Config(method="fedcac", rounds=50)` is what the commands build from their flags."""

    method: MethodConfig = MethodConfig()
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    public: PublicConfig = PublicConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    rounds: int = Field(60, ge=1, description="communication rounds")
    participation: float = Field(1.0, gt=0, description="share of clients per round in (0, 1], or a count >= 2")
    aggregator: AggregatorConfig = AggregatorConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    seeds: list[Seed] = Field(
        [0],
        min_length=1,
        description="seeds, each a full run: partition, start model, batches; grid and compare: of final runs, where "
        "none are given 0 1 2",
    )
    resources: ResourcesConfig = ResourcesConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    keep_results: bool = Field(
        False, description="take what is kept although your code of the method, model, data or aggregator has changed"
    )
    save_models: bool = Field(
        False, description="keep the last personal model of every evaluated client, at both points, as a state dict"
    )
    loggers: list[str] = Field([], description="wandb, csv, tensorboard, or package.module:Class of a Lightning Logger")
    wandb: WandbConfig = WandbConfig()
    name: str | None = Field(None, description="name of the run; none: made from what was asked")
    out: Path | None = Field(None, description="folder for the results; none: results/<experiment>/<name>")

    @field_validator("participation")
    @classmethod
    def _share_or_count(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("a share in (0, 1] or a whole count >= 2")
        return value

    @field_validator("seeds", "loggers")
    @classmethod
    def _distinct(cls, value: list[Any], info: ValidationInfo) -> list[Any]:
        if len(set(value)) != len(value):
            raise ValueError(f"each {str(info.field_name).removesuffix('s')} once")
        return value

    @field_validator("name")
    @classmethod
    def _one_folder(cls, value: str | None) -> str | None:
        return value if value is None else folder_name(value)

    def __init__(self, **values: Any) -> None:
        """Raises ConfigError, one line, for unknown keys, wrong types and values out of range."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, type(self))) from None

    @classmethod
    def of(cls, asked: "Config | Mapping[str, Any]") -> "Config":
        """A request, or one that is written as a mapping of its keys. Raises ConfigError."""
        if isinstance(asked, cls):
            return asked
        if not isinstance(asked, Mapping):
            raise ConfigError(f"a Config or a dict of its keys is expected, not a {type(asked).__name__}")
        return cls(**asked)

    def __getstate__(self) -> dict[Any, Any]:
        """With the classes and functions that only this process knows, for others that it is sent to."""
        names = [str(section.name) for section in (self.method, self.data, self.model, self.aggregator)]
        return {**super().__getstate__(), "objects": objects_to_send([*names, *self.evaluate.metrics])}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        receive_objects(state.pop("objects"))
        super().__setstate__(state)

    def decisive(self) -> dict[str, Any]:
        """What decides the numbers of a run: everything but seeds, place, loggers, checkpoints and resources.

        The user's code and data decide them too, and are known by what is in their files.
        """
        tree = self.model_dump(mode="json")
        del tree["data"]["content"]
        for key in ("seeds", "resources", "checkpoint", "keep_results", "loggers", "wandb", "name", "out"):
            del tree[key]
        return tree

    def key(self) -> str:
        """Twelve hexadecimal digits that name what was asked, seeds aside."""
        return hashlib.sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()[:12]

    def to_yaml(self) -> str:
        """Without what only this command was to do."""
        return yaml.safe_dump(self.model_dump(mode="json", exclude={"keep_results"}), sort_keys=False)


def folder_name(value: str) -> str:
    """A name that is one folder's below the one it is put in. Raises ValueError."""
    if value in ("", ".", "..") or "/" in value or not value.isprintable():
        raise ValueError("must be the name of one folder, without / and line breaks; --out takes a path")
    return value
