"""Methods that are compared, and what each of them is tuned over."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

from fedbench import methods, models
from fedbench.aggregation.aggregator import MEAN
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.config.keys import flat, nest
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import with_defaults
from fedbench.methods.base import takes_aggregators
from fedbench.results.plan import point_name
from fedbench.runtime.warnings import unused_train_keys
from fedbench.studies.search import Search
from fedbench.studies.space import Space, Values

BASELINES = ("local", "centralized", "fedavg-ft")
"""Without them a table says nothing about collaboration."""
VARIED = ("method", "train", "aggregator")
"""Sections in which variants differ: all else is the same for those that are compared, or pairs would not be pairs."""
TUNE_SEEDS = (90,)
"""Never among the final ones, so that nothing is chosen on what is reported."""


@dataclass(frozen=True)
class ComparedMethod:
    """label: what tables call it. method: its name; fixed: keys that are set for it alone; points: what is tried.

    trial: keys that are set while points are tried, such as fewer rounds. seeds: of its final runs; none: the study's.
    space: what points are of. samples: how many are proposed, one after another, of which `points` has the first.
    refused: points that no run takes, and why. untuned: keys of its space that have no effect on it.
    """

    label: str
    name: str
    fixed: Values = field(default_factory=dict)
    points: tuple[Values, ...] = ({},)
    trial: Values = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    samples: int = 0
    space: Space | None = None
    refused: tuple[tuple[Values, str], ...] = ()
    untuned: tuple[str, ...] = ()

    @property
    def tries(self) -> int:
        """How many points are tried, those that will be proposed included."""
        return max(len(self.points), self.samples)

    @property
    def tuned(self) -> bool:
        """Whether there is a choice."""
        return self.tries > 1

    @classmethod
    def parse(cls, text: str) -> "ComparedMethod":
        """`NAME`, `NAME:key=value,...` (a variant), or `package.module:Class`, perhaps with options too.

        A key without a section is the method's. Raises ConfigError.
        """
        name, colon, options = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
        if colon and not name:
            raise ConfigError(f"methods: {text}: a variant is written NAME:key=value")
        methods.load(name)
        fixed: Values = {}
        for pair in filter(None, options.split(",")):
            key, equals, value = pair.partition("=")
            if not (key and equals and value):
                raise ConfigError(f"methods: {text}: '{pair}' is no key=value; a variant is written NAME:key=value,...")
            whole = methods.full_key(name, key if "." in key else f"method.{key}")
            if whole.partition(".")[0] not in VARIED:
                raise ConfigError(
                    f"methods: {text}: {whole} must be the same for all that are compared; a variant sets keys of "
                    f"method, train and aggregator, and --over compares in several settings, --over {whole}=V1,V2"
                )
            if whole in fixed:
                raise ConfigError(f"methods: {text}: {whole} is given twice")
            fixed[whole] = parse_value(value)
        return cls(name if not fixed else f"{name} {point_name(fixed)}", name, fixed)

    @classmethod
    def baseline(cls, name: str) -> "ComparedMethod":
        """A method beside those that are asked about, with their aggregator where it averages. Raises ConfigError."""
        return cls(name, name, {} if takes_aggregators(methods.load(name)) else {"aggregator.name": MEAN})

    def config(self, config: Config, values: Values | None = None) -> Config:
        """What is asked of everybody, for this method, at a point. Options of another method are not taken over."""
        tree = config.model_dump(mode="json", exclude_unset=True)
        if config.method.name != self.name:
            tree["method"] = {"name": self.name}
        if "aggregator.name" in self.fixed:
            tree.pop("aggregator", None)
        asked = {methods.full_key(self.name, key): value for key, value in flat(tree).items()}
        return Config(**nest({**asked, **self.fixed, **(values or {})}))

    def runs(
        self, config: Config, seeds: Sequence[int], tune_seeds: Sequence[int] = TUNE_SEEDS
    ) -> Iterator[tuple[Config, int]]:
        """Configuration and seed of what it will run: the points that are tried, then the final runs at the first.

        Where points are not known yet, known ones stand for them.
        """
        for point in islice(cycle(self.points), self.tries) if self.tuned else ():
            asked = self.config(config, {**point, **self.trial})
            yield from ((asked, seed) for seed in tune_seeds)
        final = self.config(config, self.points[0])
        yield from ((final, seed) for seed in self.seeds or seeds)

    def _seen(self, asked: Config) -> Values:
        """What a run has where a point says nothing, which conditions see."""
        try:
            asked = with_defaults(asked)
        except ConfigError:  # a point may mend it
            return set_keys(asked)
        tree = asked.model_dump(mode="json")
        return {f"{section}.{key}": value for section in ("train", "method") for key, value in tree[section].items()}

    def refusal(self, config: Config, point: Values) -> str | None:
        """Why no run takes a point; None where one does."""
        try:
            with_defaults(self.config(config, point))
        except ConfigError as error:
            return str(error)
        return None

    def tuned_over(
        self,
        space: Space,
        config: Config,
        most: int | None,
        search: Search = Search(),  # noqa: B008 # frozen
    ) -> "ComparedMethod":
        """With the points of a space, less what is set already, and less what no run takes.

        most: points, if not all. Raises ConfigError where nothing is left.
        """
        asked = self.config(config)
        own = replace(space.with_own_names(self.name).without(set_keys(asked)), given=self._seen(asked))
        untuned = self.without_effect(own.axes, config)
        own = replace(own, axes={key: values for key, values in own.axes.items() if key not in untuned})
        refused: dict[str, tuple[Values, str]] = {}

        def takes(point: Values) -> bool:
            if (why := self.refusal(config, point)) is not None:
                refused[point_name(point)] = (point, why)
            return why is None

        points = search.points(own, most, takes)
        left_out = tuple(refused.values())
        if not points:
            raise ConfigError(left_out[0][1] if left_out else f"space: no point of {self.label} meets its constraint")
        samples = (most or search.samples or 1) if search.kind == "optuna" and own.axes else 0
        return replace(self, points=tuple(points), refused=left_out, samples=samples, space=own, untuned=untuned)

    def without_effect(self, axes: Iterable[str], config: Config) -> tuple[str, ...]:
        """The keys of a space that the model's own optimiser does not read, where that makes the steps."""
        asked = self.config(config)
        optimizer = str(self._seen(asked).get("train.optimizer", "auto"))
        if "train.optimizer" in axes:
            return ()
        if optimizer == "auto" and models.MODELS.path(asked.model.name):
            optimizer = "module"
        idle = unused_train_keys(methods.load(self.name), optimizer)
        return tuple(key for key in axes if key in {f"train.{name}" for name in idle})


def set_keys(config: Config) -> Values:
    """What is set of a method's options and of the training, by dotted key."""
    tree = config.train.model_dump(mode="json")
    given = {f"train.{key}": tree[key] for key in config.train.model_fields_set}
    return given | {f"method.{key}": value for key, value in config.method.options.items()}


def require_distinct(compared: Sequence[ComparedMethod]) -> None:
    """Raises ConfigError where one is given twice."""
    seen: set[str] = set()
    for method in compared:
        if method.label in seen:
            raise ConfigError(f"methods: {method.label} is given twice; give each once, variants as NAME:key=value")
        seen.add(method.label)
