"""Tasks: how targets are read, the loss of a model's outputs and their metrics. One file per task.

A file holds `TASK`. The data set and the record of a run name the task. Others are `package.module:TASK`.
"""

from collections.abc import Mapping
from copy import copy
from operator import attrgetter
from typing import Any

from fedbench.errors import ConfigError, RunError
from fedbench.plugins import PluginTable, modules
from fedbench.tasks.metric import Metric
from fedbench.tasks.task import Score, Task, mean_of, pooled_value

__all__ = ["Metric", "Score", "Task", "load", "mean_of", "names", "pooled_value"]


def _check(name: str, thing: Any) -> None:
    if not (isinstance(thing, Task) or (isinstance(thing, type) and issubclass(thing, Task))):
        raise ConfigError(f"task '{name}' is neither an instance nor a subclass of fedbench.tasks.Task")


TASKS = PluginTable(
    "task",
    group="fedbench.tasks",
    built_in=modules(
        __name__, __path__, ("task", "metric", "metric_classes", "further", "outcomes", "targets", "class_numbers")
    ),
    extract=attrgetter("TASK"),
    form="package.module:TASK",
    check=_check,
)


def names() -> list[str]:
    """All tasks."""
    return TASKS.names()


def load(name: str, evaluate: Mapping[str, Any] | None = None) -> Task:
    """The task of this name, with the metrics in `evaluate.*`. Raises ConfigError."""
    plugin = TASKS.load(name)
    task: Task = _make_task(name, plugin) if TASKS.path(name) else plugin
    metrics, primary = (evaluate or {}).get("metrics") or [], (evaluate or {}).get("metric")
    return task.with_metrics(metrics, primary) if metrics or primary else task


def _make_task(name: str, plugin: Any) -> Task:
    """A task of the user's, an instance or a class, under the name by which it is asked for."""
    try:
        task = copy(plugin) if isinstance(plugin, Task) else plugin()
    except Exception as error:
        raise ConfigError(f"task '{name}' cannot be made: {RunError.of(error)}; name an instance of it") from error
    if not all(isinstance(metric, Metric) for metric in task.metrics) or not task.metrics:
        raise ConfigError(f"task '{name}': its metrics must be a tuple of fedbench.tasks.Metric")
    if task.loss_metric not in {metric.name for metric in task.metrics}:
        raise ConfigError(f"task '{name}': its loss_metric, {task.loss_metric}, is none of its metrics")
    task.name = name
    return task
