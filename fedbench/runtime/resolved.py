"""A run with nothing left open: what its configuration names is found, and its options are checked, once."""

from dataclasses import dataclass, replace
from typing import Any

from fedbench import methods
from fedbench.aggregation import rules
from fedbench.aggregation.aggregator import Aggregator
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.methods.base import Method
from fedbench.tasks import Task, load


@dataclass(frozen=True, eq=False)
class ResolvedRun:
    """What everything that works on a run is given, so that nothing looks a name up again.

    Every process makes it once: processes send each other the configuration, so that each has the classes that its own
    imports give it. config: with every default filled in. options: of the method.
    """

    config: Config
    dataset: Dataset
    method: type[Method]
    options: Any
    aggregator: Aggregator
    task: Task

    @classmethod
    def of(cls, config: Config, dataset: Dataset | None = None) -> "ResolvedRun":
        """Of a configuration in which no default is left open. dataset: where it is loaded already.

        Raises ConfigError.
        """
        dataset = dataset or Dataset.load(config.data)
        return cls(
            config,
            dataset,
            methods.load(config.method.name),
            methods.checked_options(config.method),
            rules.make(config.aggregator),
            load(dataset.task, config.evaluate.model_dump()),
        )

    @property
    def seed(self) -> int:
        """The seed of a run that has one."""
        (seed,) = self.config.seeds
        return seed

    def of_seed(self, config: Config) -> "ResolvedRun":
        """The same run with one of its seeds, as the configuration of a job has it."""
        return replace(self, config=config)
