"""What a model learns: the loss of its outputs, and the metrics that they are judged by. One file per task.

A file holds `TASK`. The data set names its task, and so does the record of a run.
"""

from importlib import import_module
from pkgutil import iter_modules

from fedbench.tasks.task import Metric, Score, Task, mean_of

__all__ = ["Metric", "Score", "Task", "load", "mean_of", "names"]


def names() -> list[str]:
    """All tasks."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "task")


def load(name: str) -> Task:
    """The task of that name."""
    task: Task = import_module(f"fedbench.tasks.{name}").TASK
    return task
