"""Flags: every configuration key by its dotted name, taken from the pydantic models."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import fedbench
from fedbench.config import Config, ResourcesConfig
from fedbench.config.files import load_yaml, parse_value
from fedbench.config.keys import flat
from fedbench.config.section import OpenSection
from fedbench.config.tuning import ComparisonTuning, Tuning
from fedbench.config.words import legal_of, plural_of, section_of
from fedbench.errors import ConfigError, nearest

PRESETS = Path(fedbench.__file__).parent / "studies" / "presets"
PRESET_NAMES = sorted(path.stem for path in PRESETS.glob("*.yaml"))
KeyValues = dict[str, Any]


@dataclass(frozen=True)
class Flag:
    """A flag besides the configuration keys. Without `metavar` it is a switch; `many` collects several values.

    choices: its values, for completion in a shell.
    """

    name: str
    description: str
    metavar: str = ""
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """Its name in the namespace."""
        return self.name.replace("-", "_")


COMMON = (
    Flag("config", "YAML file with the same keys; flags override the file, the file overrides the preset", "FILE"),
    Flag(
        "preset",
        f"start from a published protocol: {', '.join(PRESET_NAMES)}",
        "NAME",
        choices=tuple(PRESET_NAMES),
    ),
    Flag("print-config", "print the resolved configuration, mark what differs from the defaults, and stop"),
    Flag("debug", "show the stack trace of an error"),
    Flag("help", "show the usual flags; with --method NAME also the method's options"),
    Flag("help-all", "show all flags"),
)


def sections() -> dict[str, type[BaseModel]]:
    """The sections of the configuration by name."""
    return {name: kind for name, field in Config.model_fields.items() if (kind := section_of(field)) is not None}


def config_keys() -> dict[str, FieldInfo]:
    """Every configuration key by dotted name, in order."""
    keys: dict[str, FieldInfo] = {}
    for name, field in Config.model_fields.items():
        inside = sections()[name].model_fields if name in sections() else None
        keys |= {name: field} if inside is None else {f"{name}.{key}": inner for key, inner in inside.items()}
    return keys


def keys_of_command(tuning: type[Tuning] | None = None) -> dict[str, FieldInfo]:
    """The keys that a command takes: those of the configuration, and those of tuning, if it tunes."""
    fields = tuning.model_fields if tuning else {}
    return CONFIG_KEYS | {f"{TUNING_PREFIX}{key}": field for key, field in fields.items()}


CONFIG_KEYS = config_keys()
TUNING_PREFIX = "tuning."
OPEN = [name for name, kind in sections().items() if issubclass(kind, OpenSection)]
SHORT = {key: f"resources.{key}" for key in ResourcesConfig.model_fields}
SHORT |= {"task": "data.task", "metrics": "evaluate.metrics", "metric": "evaluate.metric"}
SHORT |= {name: f"{name}.name" for name in sections() if f"{name}.name" in CONFIG_KEYS}
SHORT |= {key: f"{TUNING_PREFIX}{key}" for key in ComparisonTuning.model_fields}


def read(
    argv: Sequence[str], flags: dict[str, Flag], keys: Mapping[str, FieldInfo] = CONFIG_KEYS
) -> tuple[Namespace, KeyValues]:
    """Reads the command's own flags and the keys with their values. Raises ConfigError.

    Only flags that collect several values may be given more than once.
    """
    args = Namespace(
        **{flag.attribute: [] if flag.many else None if flag.metavar else False for flag in flags.values()}
    )
    pairs: KeyValues = {}
    written: dict[str, str] = {}
    for name, values in _tokens(argv):
        text = " ".join([f"--{name}", *values])
        name = name if name in flags else next(iter(plural_of(name, flags)), name)
        key = name if name in flags else _key(name, flags, keys)
        if key in written and not (key in flags and flags[key].many):
            raise ConfigError(f"--{name} is given twice, as {written[key]} and as {text}: give it once")
        written[key] = text
        if name in flags:
            _set_flag(args, flags[name], values)
        else:
            pairs[key] = _value(name, keys.get(key), values)
    return args, pairs


def merge_layers(preset: str | None, file: str | None, pairs: KeyValues) -> KeyValues:
    """Merges preset, file and flags; later ones override earlier ones."""
    layers = [_preset(preset) if preset else {}, flat_config(load_yaml(file)) if file else {}, pairs]
    result: KeyValues = {}
    for layer in layers:
        result = {**_without_stale_options(result, layer), **layer}
    return result


def flat_config(tree: dict[str, Any]) -> KeyValues:
    """Flattens a tree, with `method: fedcac` as `method.name`. Raises ConfigError for a section of a wrong type."""
    for name, value in tree.items():
        if name in sections() and f"{name}.name" not in CONFIG_KEYS and not isinstance(value, dict):
            Config(**{name: value})  # raises with the legal values
    return {f"{key}.name" if f"{key}.name" in CONFIG_KEYS else key: value for key, value in flat(tree).items()}


def _without_stale_options(pairs: KeyValues, layer: KeyValues) -> KeyValues:
    """Drops the options of a method, model or data set that a higher layer replaces."""
    named = {section: f"{section}.name" for section in OPEN}
    changed = {s for s, name in named.items() if name in layer and layer[name] != pairs.get(name, layer[name])}
    return {key: v for key, v in pairs.items() if key in CONFIG_KEYS or key.split(".")[0] not in changed}


def _preset(name: str) -> KeyValues:
    if name not in PRESET_NAMES:
        raise ConfigError(f"--preset {name}: unknown preset, {nearest(name, PRESET_NAMES)}")
    return flat_config(load_yaml(PRESETS / f"{name}.yaml"))


def _tokens(argv: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """`--a 1 --b=2 3` -> ("a", ["1"]), ("b", ["2", "3"])."""
    flags: list[tuple[str, list[str]]] = []
    for token in argv:
        if token == "-h" or token.startswith("--"):
            name, equals, value = ("help", "", "") if token == "-h" else token[2:].partition("=")
            flags.append((name, [value] if equals else []))
        elif flags:
            flags[-1][1].append(token)
        else:
            raise ConfigError(f"unexpected argument '{token}': flags start with --, for example --method fedcac")
    return iter(flags)


def _set_flag(args: Namespace, flag: Flag, values: list[str]) -> None:
    if flag.many:
        if not values:
            raise ConfigError(f"--{flag.name}: needs one or more values, {flag.metavar}")
        getattr(args, flag.attribute).extend(values)
    elif bool(flag.metavar) != (len(values) == 1) or len(values) > 1:
        takes = f"takes one value, {flag.metavar}" if flag.metavar else "takes no value"
        raise ConfigError(f"--{flag.name} {' '.join(values)}".rstrip() + f": {takes}")
    else:
        setattr(args, flag.attribute, values[0] if flag.metavar else True)


def _key(name: str, flags: dict[str, Flag], keys: Mapping[str, FieldInfo]) -> str:
    """The dotted key that a flag sets."""
    key = name.replace("-", "_")
    for known in (key, *plural_of(key, {*keys, *SHORT})):  # --seed 3 means --seeds 3
        whole = SHORT.get(known, known)
        section, dot, option = whole.partition(".")
        if whole in keys or (section in OPEN and dot and option):
            return whole
    raise ConfigError(f"unknown flag --{name}: {_nearest_flag(name, flags, keys)}")


def _nearest_flag(name: str, flags: dict[str, Flag], keys: Mapping[str, FieldInfo]) -> str:
    """Suggests `--train.lr` for `--lr`, otherwise the most similar flag."""
    last = name.rpartition(".")[2].replace("-", "_")
    if last in ComparisonTuning.model_fields:
        return f"{'grid and compare take' if last in Tuning.model_fields else 'compare takes'} it"
    same = [f"--{key}" for key in CONFIG_KEYS if key.rpartition(".")[2] == last]
    short = [flag_of(key) for key in keys if key in SHORT.values()]
    known = [f"--{key}" for key in (*keys, *flags, *short)]
    hint = nearest(f"--{name}", same or known) if not same else f"did you mean {' or '.join(same)}?"
    return hint if hint.startswith("did you mean") else "see --help-all"


def flag_of(key: str) -> str:
    """The flag of a key as --help shows it: `hosts` for resources.hosts, `save-models` for save_models."""
    short = {long: short for short, long in SHORT.items()}.get(key, key)
    return short if "." in short else short.replace("_", "-")


def _value(name: str, field: FieldInfo | None, values: list[str]) -> Any:
    """The value of a key, from the words after its flag. field: of the key; an option of a method has none here."""
    if not values and (field is None or field.annotation is bool):
        return True
    if not values:
        raise ConfigError(f"--{name}: needs a value ({legal_of(field) if field else 'any'})")
    if field is not None and get_origin(field.annotation) is list:
        return _items(values, text=_is_text(get_args(field.annotation)[0]))
    if len(values) > 1 and field is not None:
        raise ConfigError(f"--{name} {' '.join(values)}: takes one value ({legal_of(field)})")
    read = [v if field and _is_text(field.annotation) else parse_value(v) for v in values]
    return read[0] if len(read) == 1 else read


def _items(values: list[str], text: bool) -> list[Any]:
    """Accepts `0 1 2`, `0,1,2` and `[0, 1, 2]`."""
    joined = " ".join(values).strip()
    if joined.startswith("["):
        return list(parse_value(joined) or [])
    words = split_words(values)
    return words if text else [parse_value(word) for word in words]


def split_words(texts: Sequence[str]) -> list[str]:
    """Splits the values of a flag at commas: `["a", "b,c"]` -> `["a", "b", "c"]`."""
    return [word for text in texts for word in text.split(",") if word]


def _is_text(annotation: Any) -> bool:
    """Whether a key takes text only, so that `--name 007` remains text."""
    kinds = get_args(annotation) or (annotation,)
    return all(kind in (str, Path, type(None)) for kind in kinds)


def yaml_value(value: Any) -> str:
    """A value as one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).strip()
    return text.removesuffix("...").strip()
