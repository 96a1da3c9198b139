"""The aggregators, one file each: a module `my_rule.py` holds the one class that `--aggregator my-rule` runs."""

from types import ModuleType
from typing import Any

from fedbench.errors import ConfigError
from fedbench.plugins import Table, modules, only_class


def _class_in(module: ModuleType) -> Any:
    from fedbench.aggregation.aggregator import Aggregator

    return only_class(module, Aggregator)


def _check(name: str, thing: Any) -> None:
    from fedbench.aggregation.aggregator import Aggregator

    if not (issubclass(thing, Aggregator) if isinstance(thing, type) else callable(thing)):
        raise ConfigError(
            f"aggregator '{name}' is no function (vectors, weights, current) -> vector, nor a subclass of "
            "fedbench.aggregation.aggregator.Aggregator"
        )


RULES = Table(
    "aggregator",
    group="fedbench.aggregators",
    own=modules(__name__, __path__),
    held=_class_in,
    form="package.module:function",
    check=_check,
)


def names() -> list[str]:
    """What `aggregator.name` may be, without importing any."""
    return RULES.names()
