"""The methods, one file each: `fed_x.py` defines the one class that `--method fed-x` runs."""

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fedbench.config import MethodConfig, Section, TrainConfig
from fedbench.config.section import make_section
from fedbench.errors import CONTRACT, ConfigError, nearest
from fedbench.plugins import PluginTable, modules, only_class

if TYPE_CHECKING:
    from fedbench.methods.base import Method


def _class_in(module: ModuleType) -> Any:
    from fedbench.methods.base import Method

    return only_class(module, Method)


def _check(name: str, thing: Any) -> None:
    from fedbench.methods.base import Method
    from fedbench.methods.class_check import check_class

    if not (isinstance(thing, type) and issubclass(thing, Method)):
        raise ConfigError(
            f"method '{name}' is not a subclass of fedbench.methods.base.Method; docs/own.md shows how to write one"
        )
    check_class(thing)


NO_METHODS = (*CONTRACT, "cotraining")
"""Files that are no methods: the contract, and the base of a family of methods."""
METHODS = PluginTable(
    "method",
    group="fedbench.methods",
    built_in=modules(__name__, __path__, NO_METHODS),
    extract=_class_in,
    form="package.module:Class",
    check=_check,
)


def names() -> list[str]:
    """The valid values of `method.name`, without importing the methods."""
    return METHODS.names()


def split_names(words: Iterable[str]) -> list[str]:
    """`["a", "b:x=1", "y=2", "c"]` -> `["a", "b:x=1,y=2", "c"]`: a word with `=` and no colon continues a variant.

    Raises ConfigError.
    """
    names: list[str] = []
    for word in words:
        if "=" in word and ":" not in word.partition("=")[0]:
            if not names or "=" not in names[-1]:
                raise ConfigError(f"methods: {word}: no method; variants are NAME:key=value,...")
            names[-1] += f",{word}"
        else:
            names.append(word)
    return names


def load(name: str) -> "type[Method]":
    """The class of a method, by name or by package.module:Class. Raises ConfigError."""
    kind: type[Method] = METHODS.load(name)
    return kind


def checked_options(config: MethodConfig) -> "Method.Options":
    """The chosen method's options with their defaults. Raises ConfigError for unknown or invalid ones."""
    kind, options = load(config.name).Options, dict[str, Any]()
    for symbol, value in config.options.items():
        key = symbols(kind).get(symbol, symbol)
        if key in options:
            raise ConfigError(f"method.{symbol} is set twice, by name and by symbol; set it once")
        options[key] = value
        if key not in kind.model_fields and kind.model_config.get("extra") != "allow":
            raise ConfigError(f"unknown key method.{key}: {_known_options(key, config.name, kind)}")
    return make_section(kind, options, "method.")


def symbols(options: type[BaseModel]) -> dict[str, str]:
    """Options by the symbols of their papers: `{"p": "personalization_rate"}`."""
    extras = {name: field.json_schema_extra for name, field in options.model_fields.items()}
    return {str(more["symbol"]): name for name, more in extras.items() if isinstance(more, dict) and "symbol" in more}


def full_key(method: str, key: str) -> str:
    """`method.p` -> `method.personalization_rate`; other keys as they are. Raises ConfigError for unknown methods."""
    section, _, name = key.partition(".")
    if section != "method":
        return key
    return f"method.{symbols(load(method).Options).get(name, name)}"


def _known_options(key: str, method: str, kind: type[Section]) -> str:
    """The options of a method, for an unknown key, and the methods that have the key."""
    owners = [name for name, other in METHODS.loadable() if key in other.Options.model_fields]
    if key in TrainConfig.model_fields:
        return f"did you mean train.{key}?"
    hint = nearest(key, kind.model_fields)
    if hint.startswith("did you mean") and not owners:
        return hint
    have = f"; {', '.join(owners)} {'has' if len(owners) == 1 else 'have'} it (--method NAME)" if owners else ""
    return f"method {method} takes {', '.join(sorted(kind.model_fields)) or 'no options'}{have}"
