"""fedbench: which personalised federated learning method is better on this data, and is that true?

from fedbench import Config, run
result = run(Config(method="fedcac", rounds=50))
result.metrics, result.clients, result.report
"""

from typing import TYPE_CHECKING, Any

from fedbench.config import Config
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.studies.compare import compare
    from fedbench.studies.grid import grid
    from fedbench.studies.run import run

__all__ = ["Config", "ConfigError", "compare", "grid", "run"]

STUDIES = {
    "run": "fedbench.studies.run",
    "grid": "fedbench.studies.grid",
    "compare": "fedbench.studies.compare",
}


def __getattr__(name: str) -> Any:
    """Studies are imported when they are asked for: they import torch."""
    if name in STUDIES:
        from importlib import import_module

        return getattr(import_module(STUDIES[name]), name)
    raise AttributeError(f"module 'fedbench' has no attribute '{name}'")
