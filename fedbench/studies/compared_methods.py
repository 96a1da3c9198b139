"""Compared methods and the points over which each is tuned."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from math import ceil
from typing import Any

from fedbench import methods
from fedbench.aggregation.aggregator import MEAN
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.config.keys import flat, nest
from fedbench.config.tuning import TUNE_SEEDS, Tuning
from fedbench.errors import ConfigError
from fedbench.jobs.resolve import with_defaults
from fedbench.methods.base import Method, takes_aggregators
from fedbench.results.plan import point_name
from fedbench.runtime.warnings import unused_train_keys
from fedbench.studies.axis import OF_VARIANT
from fedbench.studies.neighbours import is_rate
from fedbench.studies.rates import NOTHING, Remarks, for_optimizer, optimizer_of
from fedbench.studies.search import points_of
from fedbench.studies.space import Space, Values
from fedbench.user_code import name_of

BASELINES = ("local", "centralized", "fedavg-ft")
"""Baselines without which a table says nothing about collaboration."""
Methods = Sequence[str | type[Method]] | str | type[Method]
"""Methods as users pass them: names, variants, classes, or a single one of these."""


def method_names(value: Methods, key: str = "methods") -> list[str]:
    """The names of methods. key: names them in errors. Raises ConfigError."""
    listed: Any = [value] if isinstance(value, str | type) else value
    if isinstance(listed, Mapping) or not isinstance(listed, Iterable):
        raise _no_method(key, listed, "a list of names and classes is expected, for example")
    names = list[str]()
    for method in listed:
        if not isinstance(method, str | type):
            raise _no_method(key, method, "a name or a class is expected, for example")
        if isinstance(method, str):
            names += methods.split_names(word.strip() for word in method.split(",") if word.strip())
        else:
            names.append(name_of(method))
    return names


def _no_method(key: str, value: Any, remedy: str) -> ConfigError:
    kind = type(value).__name__
    if isinstance(value, Method):
        return ConfigError(f"{key}: an instance of {kind}; pass the class {kind} itself")
    return ConfigError(f'{key}: {kind} is no method; {remedy} ["fedper", MyMethod]')


@dataclass(frozen=True)
class ComparedMethod:
    """label: its name in tables. method: its name; fixed: keys set for it alone; points: those to try.

    trial: keys set while points are tried, such as fewer rounds. seeds: of its final runs; empty: the study's. space:
    source of the points. samples: number of points proposed one after another, of which `points` has the first.
    refused: invalid points, and why. untuned: keys of its space that have no effect on it, and why. held: keys of its
    space that the configuration sets. rates: what to say of its space's learning rates. optional: whether it may be
    left out where it cannot run, as nobody asked for it.
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
    untuned: Mapping[str, str] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    rates: Remarks = NOTHING
    optional: bool = False

    @property
    def tries(self) -> int:
        """Number of points to try, including those yet to be proposed."""
        return max(len(self.points), self.samples)

    @property
    def tuned(self) -> bool:
        """Whether there are points to choose from."""
        return self.tries > 1

    @property
    def tries_rates(self) -> bool:
        """Whether its points differ in a learning rate, of its optimiser or of an option."""
        proposed = self.samples > 1 and any(is_rate(self.name, key) for key in (self.space.axes if self.space else ()))
        keys = [key for key in self.points[0] if is_rate(self.name, key)]
        return proposed or any(len({point[key] for point in self.points}) > 1 for key in keys)

    def tried_on(self, place: int) -> int:
        """The number of points tried on the tuning seed at this place: after each seed the better half, two at least.

        Simulated, the choice is as good as with all points on all of three seeds, for 0.6 times the runs. Points that
        are proposed one after another are tried on all seeds at once.
        """
        return self.tries if self.samples else min(self.tries, max(2, ceil(self.tries / 2**place)))

    @classmethod
    def parse(cls, text: str) -> "ComparedMethod":
        """Parse `NAME`, `NAME:key=value,...` (a variant), or `package.module:Class`, which may have options too.

        A key without a section belongs to the method. Raises ConfigError.
        """
        name, colon, options = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
        base, more, _ = name.partition(":")
        if (colon and not name) or (more and base in methods.names()):
            raise ConfigError(f"methods: {text}: a variant is written NAME:key=value")
        methods.load(name)
        fixed: Values = {}
        for pair in filter(None, options.split(",")):
            key, equals, value = pair.partition("=")
            if not (key and equals and value):
                raise ConfigError(f"methods: {text}: '{pair}' is no key=value; a variant is written NAME:key=value,...")
            key = f"{key}.name" if key in OF_VARIANT.sections else key  # a section stands for its name
            whole = methods.full_key(name, key if "." in key else f"method.{key}")
            OF_VARIANT.check(whole, text=text)
            if whole == "method.name":
                raise ConfigError(f"methods: {text}: {pair}: the method's name comes first, NAME:key=value,...")
            if whole in fixed:
                raise ConfigError(f"methods: {text}: {whole} is given twice")
            fixed[whole] = parse_value(value)
        return cls(name if not fixed else f"{name} {point_name(fixed)}", name, fixed)

    @classmethod
    def baseline(cls, name: str) -> "ComparedMethod":
        """A method added to the requested ones, with their aggregator if it averages. Raises ConfigError."""
        fixed = {} if takes_aggregators(methods.load(name)) else {"aggregator.name": MEAN}
        return cls(name, name, fixed, optional=name != BASELINES[0])

    def config(self, config: Config, values: Values | None = None) -> Config:
        """The common configuration for this method at a point. Options of another method are dropped."""
        tree = config.given()
        if config.method.name != self.name:
            tree["method"] = {"name": self.name}
        if self.fixed.get("aggregator.name", config.aggregator.name) != config.aggregator.name:
            tree.pop("aggregator", None)
        keys = {methods.full_key(self.name, key): value for key, value in flat(tree).items()}
        return Config(**nest({**keys, **self.fixed, **(values or {})}))

    def is_pooled(self, config: Config) -> bool:
        """Whether it trains one model on the data of all clients."""
        method = self.config(config, self.points[0]).method
        return methods.load(method.name).trainers(methods.checked_options(method)) == "pooled"

    def runs(
        self, config: Config, seeds: Sequence[int], tune_seeds: Sequence[int] = TUNE_SEEDS
    ) -> Iterator[tuple[Config, int]]:
        """Configuration and seed of its runs: the points to try, then the final runs at the first point.

        Known points stand for those not known yet.
        """
        for place, seed in enumerate(tune_seeds if self.tuned else ()):
            for point in islice(cycle(self.points), self.tried_on(place)):
                yield self.config(config, {**point, **self.trial}), seed
        final = self.config(config, self.points[0])
        yield from ((final, seed) for seed in self.seeds or seeds)

    def _with_defaults(self, config: Config) -> Config:
        try:
            return with_defaults(config)
        except ConfigError:  # a point may fix it
            return config

    def _given_values(self, config: Config) -> Values:
        """The values of a run for keys that a point does not set, for use in conditions."""
        whole = self._with_defaults(config)
        if whole is config:
            return set_keys(config)
        tree = whole.model_dump(mode="json")
        sections = ("train", "method", "model")
        return {f"{section}.{key}": value for section in sections for key, value in tree[section].items()}

    def refusal(self, config: Config, point: Values) -> str | None:
        """Why a point is invalid; None if it is valid."""
        try:
            with_defaults(self.config(config, point))
        except ConfigError as error:
            return str(error)
        return None

    def tuned_over(
        self, space: Space, config: Config, most: int | None, tuning: Tuning | None = None
    ) -> "ComparedMethod":
        """The method with the points of a space, without invalid ones, and without keys that are set already.

        Keys that the user listed are tried although they are set, perhaps by a preset. most: number of points, if not
        all. tuning: how points are searched; None: a grid. Raises ConfigError if no point is left.
        """
        space.check(self.name)
        own_config = self.config(config)
        own = replace(space.with_own_names(self.name), given=self._given_values(own_config))
        own, rates = for_optimizer(own, self.name, optimizer_of(self.name, self._with_defaults(own_config)))
        held = tuple(key for key in own.axes if key in set_keys(own_config) and key not in own.listed)
        own = own.without(held)
        untuned = self.without_effect(own.axes, config)
        own = own.without(untuned)
        refused: dict[str, tuple[Values, str]] = {}

        def takes(point: Values) -> bool:
            if (why := self.refusal(config, point)) is not None:
                refused[point_name(point)] = (point, why)
            return why is None

        tuning = tuning or Tuning()
        points = points_of(own, tuning, most, takes)
        left_out = tuple(refused.values())
        if not points:
            unmet = f"space: no candidate of {self.label} meets its constraint"
            raise ConfigError(left_out[0][1] if left_out else unmet)
        samples = (most or tuning.samples or 1) if tuning.search == "optuna" and own.axes else 0
        return replace(
            self,
            points=tuple(points),
            refused=left_out,
            samples=samples,
            space=own,
            untuned=untuned,
            held=held,
            rates=rates,
        )

    def without_effect(self, axes: Collection[str], config: Config) -> dict[str, str]:
        """The keys of a space that have no effect with what is set and is no axis itself, and why."""
        whole = self._with_defaults(self.config(config))
        train = whole.train
        if train.optimizer == "auto" and (makes := optimizer_of(self.name, whole)):
            train = train.model_copy(update={"optimizer": makes})
        unused = unused_train_keys(self.name, train)
        unused_keys = {f"train.{one.key}": one.why for one in unused if f"train.{one.decider}" not in axes}
        return {key: why for key, why in unused_keys.items() if key in axes}


def set_keys(config: Config) -> Values:
    """The method's options, training keys and arguments of the model that are set, by dotted key."""
    tree = config.train.model_dump(mode="json")
    given = {f"train.{key}": tree[key] for key in config.train.model_fields_set}
    given |= {f"model.{key}": value for key, value in config.model.options.items()}
    return given | {f"method.{key}": value for key, value in config.method.options.items()}


def require_distinct(compared: Sequence[ComparedMethod]) -> None:
    """Raises ConfigError if a method is given twice."""
    for label, count in Counter(method.label for method in compared).items():
        if count > 1:
            raise ConfigError(f"methods: {label} is given twice; give each once, variants as NAME:key=value")
