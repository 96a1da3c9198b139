"""A resolved run: the objects that its configuration names are loaded and its options checked, once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedbench import methods
from fedbench.aggregation import rules
from fedbench.aggregation.aggregator import Aggregator
from fedbench.config import Config
from fedbench.data.dataset import Dataset
from fedbench.data.partitions import Partition, partition
from fedbench.methods.base import Method
from fedbench.tasks import Task, load


@dataclass(frozen=True, eq=False)
class ResolvedRun:
    """The objects that a configuration names, passed to everything that works on the run.

    Every process builds it once from the configuration that it is sent, so that its classes come from its own imports.
    config: with every default filled in. options: of the method. dealt: the partitions that
    this process knows, by seed. first_model: the name of the first model, also in the runs of `with_model`.
    """

    config: Config
    dataset: Dataset
    method: type[Method]
    options: Method.Options
    aggregator: Aggregator
    task: Task
    dealt: Mapping[int, Partition] = field(default_factory=dict)
    first_model: str = ""

    @classmethod
    def of(cls, config: Config, dataset: Dataset | None = None) -> "ResolvedRun":
        """The run of a configuration with every default filled in. dataset: if already loaded.

        Raises ConfigError.
        """
        dataset = dataset or Dataset.of_run(config)
        return cls(
            config,
            dataset,
            methods.load(config.method.name),
            methods.checked_options(config.method),
            rules.make(config.aggregator),
            load(dataset.task, config.evaluate.model_dump()),
            first_model=config.model.names[0],
        )

    @property
    def seed(self) -> int:
        """The seed of a run with exactly one."""
        (seed,) = self.config.seeds
        return seed

    def partition(self) -> Partition:
        """The partition of the seed, dealt if it is not known: with a million clients that takes seconds."""
        known = self.dealt.get(self.seed)
        return known if known is not None else partition(self.dataset, self.config, self.seed)

    def with_model(self, name: str) -> "ResolvedRun":
        """The run as the clients with one of its models see it."""
        config = self.config.model_copy(update={"model": self.config.model.alone(name)})
        return replace(self, config=config)

    def of_seed(self, config: Config) -> "ResolvedRun":
        """This run with the configuration of a job, which has one of its seeds."""
        return replace(self, config=config)
