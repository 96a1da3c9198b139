"""Tasks: the loss of a model's outputs and their metrics. One file per task.

A file holds `TASK`. The data set and the record of a run name the task.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from fedbench.plugins import Table, modules
from fedbench.tasks.metric import Metric
from fedbench.tasks.task import Score, Task, mean_of

__all__ = ["Metric", "Score", "Task", "load", "mean_of", "names"]


TASKS = Table(
    "task",
    group="fedbench.tasks",
    own=modules(__name__, __path__, ("task", "metric", "further")),
    held=attrgetter("TASK"),
)


def names() -> list[str]:
    """All tasks."""
    return TASKS.names()


def load(name: str, evaluate: Mapping[str, Any] | None = None) -> Task:
    """The task of this name, with the metrics in `evaluate.*`. Raises ConfigError."""
    task: Task = TASKS.load(name)
    metrics, primary = (evaluate or {}).get("metrics") or [], (evaluate or {}).get("metric")
    return task.with_metrics(metrics, primary) if metrics or primary else task
