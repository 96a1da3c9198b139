"""The whole configuration tree: every default, range and unit lives here.

A method's own options live in its file (`Method.Options`) and appear here as `method.<option>`; a model's or a data
source's constructor arguments appear as `model.<argument>` and `data.<argument>`.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedbench.errors import ConfigError, nearest

PositiveInt = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A group of keys; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)


class OpenSection(Section):
    """A group with further keys of its own, checked by the class that `name` selects.

    A plain string stands for `name`: `method: fedcac`.
    """

    model_config = ConfigDict(extra="allow")
    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def options(self) -> dict[str, Any]:
        """The further keys."""
        return dict(self.model_extra or {})


class NamedSection(Section):
    """A closed group that may be given by its name alone."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class MethodConfig(OpenSection):
    name: str = Field("fedavg", description="method to run: a name of `fedbench methods`, or package.module:Class")


class DataConfig(OpenSection):
    name: str = Field(
        "digits",
        description="digits, mnist, fmnist, cifar10, cifar100, parquet:PATH, folder:PATH, or package.module:factory",
    )
    root: Path | None = Field(None, description="folder with the data set's published files (default: the cache)")
    val: float = Field(0.1, ge=0, lt=1, description="share of each client's training images held out for validation")


class PartitionConfig(NamedSection):
    name: Literal["iid", "shards", "pathological", "dirichlet", "dirichlet-fixed"] = Field(
        "dirichlet", description="how the images are dealt to the clients"
    )
    clients: PositiveInt = Field(10, description="number of clients")
    classes: PositiveInt = Field(2, description="classes per client (shards, pathological)")
    images: PositiveInt | None = Field(None, description="training images per class and client (shards); none: all")
    test_images: PositiveInt | None = Field(None, description="test images per class and client (shards); none: all")
    alpha: float = Field(0.5, gt=0, description="concentration per class (dirichlet, dirichlet-fixed)")
    min_images: int = Field(10, ge=1, description="fewest images per client (dirichlet): drawn again below it")
    train_size: PositiveInt = Field(500, description="training images per client (dirichlet-fixed, pathological)")
    test_size: PositiveInt = Field(100, description="test images per client (dirichlet-fixed, pathological)")
    max_draws: PositiveInt = Field(10_000, description="draws before a Dirichlet partition is given up")
    seed: int | None = Field(None, description="seed of the partition; none: the run's seed")
    flip_clients: list[int] = Field([], description="clients whose labels are permuted, c -> (c + 1) mod classes")


class PublicConfig(Section):
    size: int = Field(0, ge=0, description="unlabelled public images, class-balanced, taken before partitioning")


class ModelConfig(OpenSection):
    name: str = Field(
        "auto",
        description="mlp, avgcnn, resnet18, or package.module:Class of a LightningModule; auto: mlp for digits, "
        "avgcnn for everything else",
    )
    head: str | None = Field(None, description="dotted name of the classifier submodule (default: the model's own)")


class TrainConfig(Section):
    optimizer: Literal["auto", "module", "sgd", "adam", "adamw"] = Field(
        "auto", description="module: the LightningModule's configure_optimizers; auto: sgd for built-in models, else module"
    )
    lr: float = Field(0.01, gt=0, description="learning rate")
    momentum: float = Field(0.5, ge=0, lt=1, description="heavy-ball momentum of sgd")
    weight_decay: float = Field(5e-4, ge=0, description="coupled weight decay")
    lr_decay: float = Field(1.0, gt=0, le=1, description="every learning rate in round t is times lr_decay^(t-1)")
    batch_size: PositiveInt | Literal["full"] = Field(50, description="images per gradient step, or full")
    epochs: int = Field(5, ge=0, description="local epochs per round")
    steps: PositiveInt | None = Field(None, description="local gradient steps per round, instead of epochs")
    shuffle: bool = Field(True, description="shuffle a client's images every epoch")
    keep_optimizer: bool = Field(False, description="keep optimiser state at the client across rounds")
    precision: Literal["32-true", "64-true", "bf16-mixed"] = Field("32-true", description="arithmetic of training")
    memory_format: Literal["auto", "contiguous", "channels_last"] = Field(
        "auto", description="layout of images and convolutions; auto: by model and device"
    )
    engine: Literal["loop", "trainer"] = Field(
        "loop", description="loop: fedbench's own; trainer: lightning.Trainer, slower, for modules that need it"
    )
    threads: PositiveInt = Field(1, description="torch threads per host")


class EvaluateConfig(Section):
    every: PositiveInt = Field(1, description="evaluate every so many rounds, and always after the last")
    batch_size: PositiveInt = Field(500, description="images per evaluation batch")
    clients: PositiveInt | None = Field(None, description="evaluate a fixed random sample of clients; none: all")
    accuracy: Literal["samples", "batches"] = Field("samples", description="mean over images, or over batches")


class ResourcesConfig(Section):
    hosts: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="client host processes; 0: run in the calling process without Ray; auto: fill the machine"
    )
    cpus_per_host: float = Field(1, gt=0, description="CPU cores reserved per host")
    gpus_per_host: float | Literal["auto"] = Field("auto", description="fraction of a GPU per host; auto: by hosts and GPUs")
    address: str = Field("local", description="Ray cluster to join: local, auto, or host:port")


class CheckpointConfig(Section):
    every: int = Field(10, ge=0, description="rounds between checkpoints; 0: none")


class WandbConfig(Section):
    project: str = Field("fedbench", description="W&B project")
    entity: str | None = Field(None, description="W&B team or user")
    group: str | None = Field(None, description="W&B group; none: the experiment's name")
    tags: list[str] = Field([], description="W&B tags")
    mode: Literal["auto", "online", "offline"] = Field("auto", description="auto: online with an account, else offline")


class Config(Section):
    """A validated request. `Config(method="fedcac", rounds=50)` is what the commands build from their flags."""

    method: MethodConfig = MethodConfig()
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    public: PublicConfig = PublicConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    rounds: int = Field(100, ge=1, description="communication rounds")
    participation: float = Field(1.0, gt=0, description="share of clients per round in (0, 1], or a count >= 2")
    evaluate: EvaluateConfig = EvaluateConfig()
    seeds: list[int] = Field([0], min_length=1, description="seeds, each a full run: partition, start model, batches")
    resources: ResourcesConfig = ResourcesConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
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

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("each seed once")
        return value

    def __init__(self, **values: Any) -> None:
        """Raises ConfigError, one line, for unknown keys, wrong types and values out of range."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, type(self))) from None

    def decisive(self) -> dict[str, Any]:
        """What decides the numbers of a run: everything but seeds, place, loggers, checkpoints and resources."""
        tree = self.model_dump(mode="json")
        for key in ("seeds", "resources", "checkpoint", "loggers", "wandb", "name", "out"):
            del tree[key]
        return tree

    def key(self) -> str:
        """Twelve hexadecimal digits that name what was asked, seeds aside."""
        return hashlib.sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()[:12]

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"train": {"lr": 1}}` -> `{"train.lr": 1}`."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            out.update(flat(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out


def nested(pairs: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`; a section given by name and by keys is merged."""
    tree: dict[str, Any] = {}
    for dotted, value in pairs.items():
        *path, last = dotted.split(".")
        node = tree
        for part in path:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {} if child is None else {"name": child}
            node = child
        if isinstance(node.get(last), dict) and not isinstance(value, dict):
            node[last]["name"] = value
        else:
            node[last] = value
    return tree


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The tree in a configuration file. Raises ConfigError when it cannot be read."""
    try:
        tree = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read ({error.strerror}); give the path of a YAML file") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path}: not valid YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"--config {path}: a mapping of keys is expected, for example `rounds: 100`")
    return tree


def explain(error: ValidationError, root: type[BaseModel], prefix: str = "") -> str:
    """The first problem of a pydantic error in one line: key, value, what is legal, the nearest known name."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    section, fields, dotted = root, root.model_fields, []
    for part in path:
        if part not in fields:
            break
        dotted.append(part)
        annotation = fields[part].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section, fields = annotation, annotation.model_fields
    key = prefix + ".".join(dotted)
    if problem["type"] == "extra_forbidden":
        unknown = path[len(dotted)]
        where = f"{key}.{unknown}" if key else unknown
        return f"unknown key {where}: {nearest(unknown, section.model_fields)}"
    legal = _legal(error, path)
    return f"{key} = {problem['input']!r}: {legal}"


def _legal(error: ValidationError, path: list[str]) -> str:
    """All alternatives that a union would have taken, joined."""
    same = [e for e in error.errors() if [str(p) for p in e["loc"]][: max(1, len(path) - 1)] == path[: max(1, len(path) - 1)]]
    messages = dict.fromkeys(e["msg"].removeprefix("Value error, ").replace("Input should be", "must be") for e in same)
    return " or ".join(list(messages)[:3])
