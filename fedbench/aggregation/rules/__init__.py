"""The aggregators, one file each: a module `my_rule.py` holds the class for `--aggregator my-rule`."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedbench.config import AggregatorConfig, Section
from fedbench.config.section import make_section
from fedbench.errors import ConfigError
from fedbench.plugins import PluginTable, modules, only_class

if TYPE_CHECKING:
    from fedbench.aggregation.aggregator import Aggregator


def _class_in(module: ModuleType) -> Any:
    from fedbench.aggregation.aggregator import Aggregator

    return only_class(module, Aggregator)


def _check(name: str, thing: Any) -> None:
    from fedbench.aggregation.aggregator import Aggregator

    if not (issubclass(thing, Aggregator) if isinstance(thing, type) else callable(thing)):
        raise ConfigError(
            f"aggregator '{name}' is neither a function (vectors, weights, current) -> vector nor a subclass of "
            "fedbench.aggregation.aggregator.Aggregator"
        )


METHODS_ONLY = {
    "fedcac": "it makes a model for every client, and aggregators make one for all; use --method fedcac",
    "fedmosaic": "it weighs votes on public samples, and aggregators combine models; use --method fedmosaic, with "
    "--method.lambda_mode fixed for FedCT with weighted votes",
}
"""Methods whose aggregation is no aggregator, and why."""

AGGREGATORS = PluginTable(
    "aggregator",
    group="fedbench.aggregators",
    built_in=modules(__name__, __path__),
    extract=_class_in,
    form="package.module:function",
    check=_check,
    elsewhere=METHODS_ONLY,
)


def names() -> list[str]:
    """The legal values of `aggregator.name`, without importing the modules."""
    return AGGREGATORS.names()


def load(name: str) -> Any:
    """A subclass of Aggregator or a function by name, or by package.module:name. Raises ConfigError."""
    return AGGREGATORS.load(name)


def options_of(name: str) -> type[Section]:
    """The options of an aggregator; a function has none. Raises ConfigError."""
    from fedbench.aggregation.aggregator import Aggregator

    kind: type[Section] = getattr(load(name), "Options", Aggregator.Options)
    return kind


def checked_options(config: AggregatorConfig) -> Section:
    """The aggregator's options with defaults. Raises ConfigError for unknown or illegal ones."""
    kind = options_of(config.name)
    for key in config.options:
        if key not in kind.model_fields:
            takes = ", ".join(kind.model_fields) or "no options"
            raise ConfigError(f"unknown key aggregator.{key}: aggregator {config.name} takes {takes}")
    return make_section(kind, config.options, "aggregator.")


def make(config: AggregatorConfig) -> "Aggregator":
    """Creates the configured aggregator. Raises ConfigError."""
    from fedbench.aggregation.aggregator import FunctionAggregator

    options, rule = checked_options(config), load(config.name)
    made: Aggregator = rule(options, config.name) if isinstance(rule, type) else FunctionAggregator(config.name, rule)
    return made
