"""Networks: built-in ones by name, and any LightningModule as package.module:Class."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from fedbench.config.arguments import refuse_word
from fedbench.errors import ConfigError, nearest, place_of
from fedbench.import_string import OTHER_LIGHTNING, SAME_CLASSES, import_string
from fedbench.plugins import PluginTable
from fedbench.tasks import Task

if TYPE_CHECKING:
    from lightning import LightningModule

SHAPE = ("input_shape", "classes")
"""Arguments determined by the data, passed to every constructor that takes them."""


def build(
    name: str,
    input_shape: Any = (3, 32, 32),
    classes: int = 10,
    task: Task | None = None,
    **options: Any,
) -> "LightningModule":
    """A new network for inputs of this shape, such as (channels, height, width), or of a dict or tuple of shapes.

    Raises ConfigError.

    Initial weights come from torch's global generator: seed it first. classes: its number of outputs, also for other
    tasks. task: gives built-in networks their loss. options: further arguments of the constructor.
    """
    from fedbench.models.network import Network

    kind = load(resolve_model(name, input_shape))
    if issubclass(kind, Network) and not all(isinstance(size, int) for size in input_shape):
        raise ConfigError(
            f"model {name}: takes samples of one array; for several, bring a LightningModule of your own, or choose "
            "one of them with data.sample"
        )
    if getattr(kind, "images_only", False) and len(input_shape) != 3:
        raise ConfigError(f"model {name}: needs images, but samples have shape {input_shape}; model mlp takes any")
    shape = shape_arguments(kind, input_shape, classes)
    check_options(name, kind, shape | options)
    try:
        module = kind(**shape, **{key: construct(name, value) for key, value in options.items()})
    except ConfigError:
        raise
    except Exception as error:
        what = ", ".join(filter(None, [f"{type(error).__name__}: {error}", place_of(error)]))
        raise ConfigError(f"model {name}: its constructor failed ({what})") from error
    if isinstance(module, Network) and task:
        module.task = task
    return module


def construct(name: str, value: Any) -> Any:
    """Creates the object of `{"class_path": "pkg.mod.Net", "init_args": {...}}` like LightningCLI; else the value."""
    if not is_part(value):
        return value
    kind = import_string(part_name(value), f"a part of model {name},")
    if not callable(kind):
        raise ConfigError(f"model {name}: {value['class_path']} is not a class")
    given = value.get("init_args") or {}
    for key, parameter in _parameters(kind).items():
        refuse_word(f"init_args.{key}", given.get(key), parameter, part_name(value))
    return kind(**{key: construct(name, inner) for key, inner in given.items()})


def _parameters(kind: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The arguments of a callable; of one in C, which may not tell them, none."""
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return {}


def is_part(value: Any) -> bool:
    """Whether an option of a model describes an object."""
    return isinstance(value, dict) and "class_path" in value and {*value} <= {"class_path", "init_args"}


def part_name(value: dict[str, Any]) -> str:
    """Its class, as package.module:Class."""
    return ":".join(str(value["class_path"]).rsplit(".", 1))


def parts_in(options: Mapping[str, Any]) -> Iterator[str]:
    """The classes, as package.module:Class, of all objects in a model's options."""
    for value in options.values():
        if is_part(value):
            yield part_name(value)
            yield from parts_in(value.get("init_args") or {})


def resolve_model(name: str, input_shape: tuple[int, ...]) -> str:
    """Resolves `auto`: avgcnn for images of at least 16 pixels a side, else mlp; keeps other names."""
    if name != "auto":
        return name
    return "avgcnn" if len(input_shape) == 3 and min(input_shape[1:]) >= 16 else "mlp"


def load(name: str) -> "type[LightningModule]":
    """The class of a model: a built-in name, or package.module:Class. Raises ConfigError."""
    kind: type[LightningModule] = MODELS.load(name)
    return kind


def _check(name: str, thing: Any) -> None:
    from lightning import LightningModule
    from torch import nn

    if not (isinstance(thing, type) and issubclass(thing, LightningModule)):
        plain = isinstance(thing, type) and any(k.__module__.startswith(OTHER_LIGHTNING) for k in thing.__mro__)
        hint = f"; {SAME_CLASSES}" if plain else ""
        if not hint and isinstance(thing, type) and issubclass(thing, nn.Module):
            hint = ": derive it from that, with a training_step(self, batch, batch_idx) that returns the loss"
        raise ConfigError(f"model '{name}' is not a subclass of lightning.LightningModule{hint}")


MODELS = PluginTable(
    "model",
    group="fedbench.models",
    built_in={
        "mlp": "fedbench.models.mlp:Mlp",
        "avgcnn": "fedbench.models.avgcnn:AvgCnn",
        "resnet8": "fedbench.models.resnet:ResNet8",
        "resnet10": "fedbench.models.resnet:ResNet10",
        "resnet18": "fedbench.models.resnet:ResNet18",
        "alexnet": "fedbench.models.alexnet:AlexNet",
        "vit": "fedbench.models.vit:Vit",
    },
    form="package.module:Class",
    check=_check,
)


def constructor_arguments(kind: "type[LightningModule]") -> dict[str, inspect.Parameter]:
    """The constructor's named arguments."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {key: p for key, p in inspect.signature(kind).parameters.items() if p.kind in named}


def shape_arguments(kind: "type[LightningModule]", input_shape: Any, classes: int) -> dict[str, Any]:
    """The arguments determined by the data, of those that the constructor takes."""
    given = dict(zip(SHAPE, (input_shape, classes), strict=True))
    return {key: value for key, value in given.items() if key in constructor_arguments(kind)}


def check_options(name: str, kind: "type[LightningModule]", options: dict[str, Any]) -> None:
    """Raises ConfigError for arguments that the constructor does not take or that are missing."""
    accepted = constructor_arguments(kind)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(kind).parameters.values())
    for key in options:
        if key not in accepted and not takes_any:
            names = sorted(set(accepted) - set(SHAPE))
            hint = nearest(key, names) if names else "it has no options"
            hint += f" known: {', '.join(names)}" if hint.endswith("?") else ""
            raise ConfigError(f"unknown key model.{key}: {name} takes no such argument; {hint}")
        if key in accepted:
            refuse_word(f"model.{key}", options[key], accepted[key], name)
    for key, parameter in accepted.items():
        by_class = f"the class of an object is named by model.{key}.class_path, its arguments by model.{key}.init_args"
        if parameter.default is parameter.empty and key not in options:
            hint = by_class if takes_object(parameter) else f"arguments called {' and '.join(SHAPE)} are filled in"
            raise ConfigError(f"model {name} needs model.{key}: its constructor has no default for it; {hint}")
        if takes_object(parameter) and isinstance(options.get(key), str | int | float):
            type_name = parameter.annotation.__name__
            raise ConfigError(f"model.{key} = {options[key]!r}: {name} takes a {type_name} there; {by_class}")


def takes_object(parameter: inspect.Parameter) -> bool:
    """Whether an argument is declared to be a module or a dataclass."""
    kind = parameter.annotation
    from torch import nn

    return isinstance(kind, type) and (issubclass(kind, nn.Module) or is_dataclass(kind))
