"""The aggregators, one file each: a module `my_rule.py` holds the class for `--aggregator my-rule`."""

from pkgutil import iter_modules


def names() -> list[str]:
    """The legal values of `aggregator.name`, without importing the modules."""
    return sorted(found.name.replace("_", "-") for found in iter_modules(__path__))
