"""The whole configuration tree: every default, range and unit lives here.

A method's own options live in its file (`Method.Options`) and appear here as `method.<option>`; a model's or a data
source's constructor arguments appear as `model.<argument>` and `data.<argument>`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from yaml.constructor import ConstructorError

from fedbench.errors import ConfigError, nearest

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Records hold seeds in 32 bits."""
OTHERS: dict[type, tuple[type, ...]] = {int: (bool, float, str), float: (bool, str)}
"""What pydantic would make such a number of; its strict mode would refuse NumPy's numbers as well."""


class Section(BaseModel):
    """A group of keys; unknown keys are refused; `none` means no value where a key may have none."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _none_by_name(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields.get(info.field_name or "")
        return None if value == "none" and field and NoneType in get_args(field.annotation) else value

    @field_validator("*", mode="wrap")
    @classmethod
    def _as_written(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        """A whole number is not made of true, 1.0 or "1", a number not of true or "1"."""
        found = check(value)
        pairs = zip(found, value, strict=False) if isinstance(found, list) else [(found, value)]
        if any(isinstance(written, OTHERS.get(type(taken), ())) for taken, written in pairs):
            raise PydanticCustomError("written_otherwise", "not a number of this kind")
        return found

    @field_validator("*", mode="before")
    @classmethod
    def _no_null_byte(cls, value: Any) -> Any:
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("a null byte is in it; leave it out")
        return value


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
        description="digits, mnist, fmnist, emnist, svhn, cifar10, cifar100, cifar10c, cinic10, mini-imagenet, "
        "tiny-imagenet, organamnist, organcmnist, office-caltech10, domainnet10, pacs, parquet:PATH, folder:PATH, or "
        "package.module:factory",
    )
    root: Path | None = Field(None, description="folder with the data set's published files (default: the cache)")
    val: float = Field(0.1, ge=0, lt=1, description="share of each client's training images held out for validation")
    mean: list[float] = Field([], description="mean of pixels in [0, 1], per channel or for all; empty: the set's own")
    std: list[Annotated[float, Field(gt=0)]] = Field([], description="deviation, likewise")
    augment: list[Literal["flip", "rotate", "crop"]] = Field(
        [], description="random changes of training images: flip (left, right), rotate, crop (from a black frame)"
    )
    crop_padding: PositiveInt = Field(4, description="width of the frame for crop, in pixels")
    rotate_degrees: float = Field(15.0, gt=0, le=180, description="largest angle of rotate")


class PartitionConfig(NamedSection):
    name: Literal[
        "iid",
        "shards",
        "pathological",
        "dirichlet",
        "dirichlet-fixed",
        "practical",
        "domain",
        "domain-shards",
        "corruption",
        "file",
    ] = Field("dirichlet", description="how the images are dealt to the clients")
    clients: PositiveInt = Field(10, description="number of clients")
    classes: PositiveInt = Field(2, description="classes per client (shards, pathological, domain-shards, corruption)")
    deal: Literal["even", "shuffled", "random"] = Field(
        "even",
        description="classes of the clients (shards, domain-shards, corruption): even: each class equally often, none "
        "twice at a client; shuffled: a client may get one twice; random: each client draws its own",
    )
    images: PositiveInt | None = Field(
        None, description="training images per class and client (shards, domain-shards, corruption); none: all"
    )
    test_images: PositiveInt | None = Field(
        None, description="test images per class and client (shards, domain-shards, corruption); none: all"
    )
    alpha: float = Field(0.5, gt=0, description="concentration per class (dirichlet, dirichlet-fixed, practical)")
    min_images: int = Field(
        10, ge=1, description="fewest images per client, all its parts (dirichlet, practical): drawn again below it"
    )
    train_size: PositiveInt | None = Field(
        None, description="training images per client; none: 500 (dirichlet-fixed, pathological), all (iid, domain)"
    )
    test_size: PositiveInt | None = Field(
        None,
        description="test images per client; none: 100 (dirichlet-fixed, pathological, where test = drawn), all (iid, "
        "domain)",
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
    max_draws: PositiveInt = Field(10_000, description="draws before a partition is given up (dirichlet, practical)")
    path: Path | None = Field(
        None, description="JSON file with a list `clients` of row numbers (file), such as a run's partition.json"
    )
    seed: Seed | None = Field(None, description="seed of the partition; none: the run's seed")
    flip_clients: list[int] = Field([], description="clients whose labels are permuted, c -> (c + 1) mod classes")
    noise_clients: list[int] = Field([], description="clients with wrong labels among training and validation images")
    noise_rate: float = Field(0.2, ge=0, le=1, description="share of wrong labels at noise_clients")

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        """Processes of a cluster work in other directories."""
        return value and value.expanduser().absolute()


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
    name: str = Field(
        "auto",
        description="mlp, avgcnn, resnet8, resnet10, resnet18, alexnet, vit, or package.module:Class of a "
        "LightningModule; auto: avgcnn, or mlp for images of less than 16 pixels a side",
    )
    head: str | None = Field(None, description="dotted name of the classifier submodule (default: the model's own)")


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
    gpus_per_host: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="fraction of a GPU per host; auto: by hosts and GPUs"
    )
    address: str = Field("local", description="Ray cluster to join: local, auto, or host:port")
    states: Literal["auto", "memory", "disk"] = Field(
        "auto",
        description="private states of clients between rounds: in their host's memory, or in files; auto: files where "
        "hosts are processes of their own, so that a host's death costs no state",
    )
    scratch: Path | None = Field(
        None, description="folder for these files and for messages; none: shared memory, or /tmp where that is small"
    )


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
    rounds: int = Field(60, ge=1, description="communication rounds")
    participation: float = Field(1.0, gt=0, description="share of clients per round in (0, 1], or a count >= 2")
    evaluate: EvaluateConfig = EvaluateConfig()
    seeds: list[Seed] = Field([0], min_length=1, description="seeds, each a full run: partition, start model, batches")
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


def folder_name(value: str) -> str:
    """A name that is one folder's below the one it is put in. Raises ValueError."""
    if value in ("", ".", "..") or "/" in value or not value.isprintable():
        raise ValueError("must be the name of one folder, without / and line breaks; --out takes a path")
    return value


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


class PlainLoader(yaml.SafeLoader):
    """YAML 1.2's idea of plain values: `1e-3` is a number; `on`, `yes`, `1:30`, `007` and dates are text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name and type are PyYAML's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Keys are text, and each is there once."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConstructorError(
                    problem=f"key {key} is no text; keys are names, as rounds", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise ConstructorError(problem=f"key {key} is there twice; keep one", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


PlainLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|)$"), [*"~nN", ""])
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]
)
PlainLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), [*"-+0123456789"])
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|nan))$"),
    [*"-+.0123456789"],
)


def parse_value(text: str) -> Any:
    """A value from a command line: YAML. Raises ConfigError."""
    try:
        return yaml.load(text, PlainLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{text!r} is not a value in YAML ({str(error).splitlines()[0]})") from None


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The tree in a configuration file. Raises ConfigError when it cannot be read."""
    try:
        tree = yaml.load(Path(path).read_text(), PlainLoader)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"--config {path}: cannot be read ({reason}); give the path of a YAML file") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path}: not valid YAML ({_where(error)})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"--config {path}: a mapping of keys is expected, for example `rounds: 100`")
    return tree


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else problem


def legal(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a key takes, in words: `number in [0, 1)`, `whole number >= 1 or none`, `sgd, adam or adamw`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return legal(arguments[0], [*metadata, *arguments[1:]])
    if origin is Literal:
        return _either([str(choice) for choice in arguments])
    if origin in (Union, UnionType):
        parts = [legal(part, () if part is NoneType else metadata) for part in arguments]
        return _either([word for part in parts for word in part.split(" or ")])
    if origin is list:
        return f"list of {legal(*arguments)}".replace("number", "numbers")
    words = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path", NoneType: "none"}
    name = words.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return f"{name} {bounds}" if (bounds := _bounds(metadata)) else name


def legal_of(field: FieldInfo) -> str:
    """What a key takes, in words."""
    return legal(field.annotation, field.metadata)


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _bounds(metadata: Iterable[Any]) -> str:
    """`in [0, 1)`, `>= 1` or nothing."""
    limits: dict[str, Any] = {}
    for item in metadata:
        for part in getattr(item, "metadata", [item]):
            limits |= {side: v for side in ("ge", "gt", "le", "lt") if (v := getattr(part, side, None)) is not None}
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if low is not None and high is not None:
        return f"in {'[' if 'ge' in limits else '('}{_plain(low)}, {_plain(high)}{']' if 'le' in limits else ')'}"
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " ".join(f"{signs[side]} {_plain(value)}" for side, value in limits.items())


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def explain(error: ValidationError, root: type[BaseModel], prefix: str = "") -> str:
    """The first problem of a pydantic error in one line: key, value, what is legal, the nearest known name."""
    problem = error.errors()[0]
    section, field, path = _walk(root, [str(part) for part in problem["loc"]])
    key, value = prefix + ".".join(path), problem["input"]
    if problem["type"] == "extra_forbidden":
        unknown = str(problem["loc"][len(path)])
        where = f"{key}.{unknown}" if path else f"{prefix}{unknown}"
        elsewhere = [*_keys_called(unknown.replace("-", "_"), root)]
        hint = f"did you mean {' or '.join(elsewhere)}?" if elsewhere else nearest(unknown, section.model_fields)
        return f"unknown key {where}: {hint}"
    if problem["type"] == "value_error":
        return f"{key} = {value!r}: {problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] == "missing":
        return f"{key}: a value is needed"
    if field is None:
        name = "a name or " if "name" in section.model_fields else ""
        return f"{key} = {value!r}: must be {name}a mapping of the keys {', '.join(section.model_fields)}"
    takes = legal_of(field)
    article = "a " if takes.startswith(("number", "whole", "list", "path")) else ""
    empty = "at least one value" if problem["type"] == "too_short" else ""
    return f"{key} = {value!r}: must be {empty or article + takes}{_close(value, field)}"


def _walk(root: type[BaseModel], loc: list[str]) -> tuple[type[BaseModel], FieldInfo | None, list[str]]:
    """The innermost section, the key's field (None for a whole section) and the known part of the path."""
    section, field, path = root, None, []
    for part in loc:
        if part not in section.model_fields:
            break
        path.append(part)
        annotation = section.model_fields[part].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            field = section.model_fields[part]
            break
        section = annotation
    return section, field, path


def _keys_called(name: str, section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a section, and of those in it, whose last part is a name."""
    for key, field in section.model_fields.items():
        kind = field.annotation
        if key == name:
            yield prefix + key
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys_called(name, kind, f"{prefix}{key}.")


def _close(value: Any, field: FieldInfo) -> str:
    """`; did you mean dirichlet?` for a misspelt choice."""
    choices = [c for c in get_args(field.annotation) if isinstance(c, str)]
    hint = nearest(value, choices) if isinstance(value, str) and len(choices) > 1 else ""
    return f"; {hint}" if hint.startswith("did you mean") else ""
