"""The settings in which a comparison is made: values of keys that are the same for all methods, or of their options."""

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from fedbench import tune_space
from fedbench.config import Config
from fedbench.config.keys import flat, nest
from fedbench.config.section import OpenSection, Section, plain
from fedbench.errors import ConfigError
from fedbench.methods import full_key, load
from fedbench.results.plan import text_of
from fedbench.results.settings_file import Setting
from fedbench.studies.axis import VARIED, Axis
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.user_code import name_of

NAMED = ("data", "partition", "model", "aggregator")
"""Sections whose `name` may be an object in Python."""
OPTION = "method."
OVER_EXPECTED = 'a dict of lists of values is expected, for example {"partition.alpha": [0.1, 0.5]}'


def checked_settings(over: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Values by key with classes, functions and data by name. Raises ConfigError.

    Keys must belong to settings, and have at least two different values each.
    """
    if not isinstance(over, Mapping) or not all(isinstance(key, str) for key in over):
        raise ConfigError(f"over = {over!r:.80}: {OVER_EXPECTED}")
    settings = dict[str, list[Any]]()
    for key, values in over.items():
        VARIED.check(key)
        if isinstance(values, Mapping) or not tune_space.is_axis(values):
            raise ConfigError(f"over: {key} = {values!r:.80}: {OVER_EXPECTED}")
        if not isinstance(listed := tune_space.as_list(values), list):
            raise ConfigError(
                f"over: {key} = {Axis(key, listed).text()}: settings are listed, not drawn; give values, for example "
                f"--over {key}=0.1,0.5"
            )
        settings[key] = own = [plain(_by_name(key, value)) for value in listed]
        if len(set(map(text_of, own))) < max(2, len(own)):
            raise ConfigError(f"over: {key} = {own}: must be two or more different values; give each once")
    return settings


def _by_name(key: str, value: Any) -> Any:
    section = key.removesuffix(".name")
    if section not in NAMED or isinstance(value, str):
        return name_of(value) if isinstance(value, type | FunctionType) else value
    try:
        own = getattr(Config(**{section: value}), section)
    except ConfigError as error:
        raise ConfigError(f"over: {error}") from None
    tree = own.model_dump(mode="json", exclude_unset=True)
    return tree["name"] if [*tree] == ["name"] else tree


def in_setting(config: Config, setting: Setting) -> Config:
    """The configuration in a setting, without options of methods. Raises ConfigError.

    Options of a data set, partition, model or aggregator are dropped where the setting has another one.
    """
    keys = flat(config.given())
    for key, value in setting.values.items():
        if is_option(key):
            continue
        pairs, name = pairs_of(key, value), key.partition(".")[0]
        section = getattr(config, name)
        if isinstance(section, OpenSection) and pairs.get(f"{name}.name", section.name) != section.name:
            for option in section.options:
                keys.pop(f"{name}.{option}", None)
        keys |= pairs
    try:
        return Config(**nest(keys))
    except ConfigError as error:
        raise ConfigError(f"over: {error}") from None


def pairs_of(key: str, value: Any) -> dict[str, Any]:
    """What a value sets by dotted key: of a section its name, or the keys of a dict, while others stay."""
    section = getattr(Config(), key, None)
    if not isinstance(section, Section):
        return {key: value}
    by_name = "name" in type(section).model_fields and not isinstance(value, Mapping)
    return flat({key: {"name": value} if by_name else value})


def is_option(key: str) -> bool:
    """Whether a key is an option of methods."""
    return key.startswith(OPTION) and key != f"{OPTION}name"


def has_option(method: ComparedMethod, key: str) -> bool:
    """Whether a method has an option, `method.tau`."""
    return full_key(method.name, key).removeprefix(OPTION) in load(method.name).Options.model_fields
