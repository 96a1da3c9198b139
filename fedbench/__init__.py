"""fedbench: which personalised federated learning method is better on this data, and is that true?

from fedbench import Config, run
result = run(Config(method="fedcac", rounds=50))
result.metrics, result.clients, result.report
"""

from typing import TYPE_CHECKING, Any

from fedbench.config import Config
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.checks.suite import check
    from fedbench.data.describe import describe
    from fedbench.studies.compare import compare
    from fedbench.studies.grid import grid
    from fedbench.studies.load import load, load_model
    from fedbench.studies.run import run

__all__ = ["Config", "ConfigError", "__version__", "check", "compare", "describe", "grid", "load", "load_model", "run"]

STUDIES = {name: f"fedbench.studies.{name}" for name in ("run", "grid", "compare")}
LOADERS = dict.fromkeys(("load", "load_model"), "fedbench.studies.load") | {"describe": "fedbench.data.describe"}
CHECKS = {"check": "fedbench.checks.suite"}


def __getattr__(name: str) -> Any:
    """Studies are imported when they are asked for: they import torch."""
    if name == "__version__":
        from fedbench.installation import version

        return version() or "unknown"
    if module := {**STUDIES, **LOADERS, **CHECKS}.get(name):
        from importlib import import_module

        return getattr(import_module(module), name)
    raise AttributeError(f"module 'fedbench' has no attribute '{name}'")
