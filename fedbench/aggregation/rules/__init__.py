"""The aggregators, one file each: a module `my_rule.py` holds the one class that `--aggregator my-rule` runs."""

from pkgutil import iter_modules


def names() -> list[str]:
    """What `aggregator.name` may be, without importing any."""
    return sorted(found.name.replace("_", "-") for found in iter_modules(__path__))
