"""Methods that are compared, and what each of them is tuned over."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedbench import methods
from fedbench.aggregation.aggregator import MEAN
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.config.keys import flat, nested
from fedbench.errors import ConfigError
from fedbench.results.plan import point_name
from fedbench.studies.space import Space, Values

TUNE_SEEDS = (90,)
"""Never among the final ones, so that nothing is chosen on what is reported."""


@dataclass(frozen=True)
class Contender:
    """label: what tables call it. method: its name; fixed: keys that are set for it alone; points: what is tried.

    trial: keys that are set while points are tried, such as fewer rounds. seeds: of its final runs; none: the study's.
    """

    label: str
    method: str
    fixed: Values = field(default_factory=dict)
    points: tuple[Values, ...] = ({},)
    trial: Values = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    @classmethod
    def named(cls, text: str) -> "Contender":
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
            whole = key if "." in key else f"method.{key}"
            if whole in fixed:
                raise ConfigError(f"methods: {text}: {whole} is given twice")
            fixed[whole] = parse_value(value)
        return cls(name if not fixed else f"{name} {point_name(fixed)}", name, fixed)

    @classmethod
    def baseline(cls, name: str) -> "Contender":
        """A method beside those that are asked about, with their aggregator where it averages. Raises ConfigError."""
        return cls(name, name, {} if methods.load(name).averages else {"aggregator.name": MEAN})

    def config(self, config: Config, values: Values | None = None) -> Config:
        """What is asked of everybody, for this method, at a point. Options of another method are not taken over."""
        tree = config.model_dump(mode="json", exclude_unset=True)
        if config.method.name != self.method:
            tree["method"] = {"name": self.method}
        if "aggregator.name" in self.fixed:
            tree.pop("aggregator", None)
        return Config(**nested({**flat(tree), **self.fixed, **(values or {})}))

    def tuned_over(self, space: Space, config: Config, most: int | None) -> "Contender":
        """With the points of a space, less what is set already."""
        asked = self.config(config)
        given = {f"train.{key}" for key in asked.train.model_fields_set}
        given |= {f"method.{key}" for key in asked.method.options}
        points = space.without(sorted(given)).points(most)
        return Contender(self.label, self.method, self.fixed, tuple(points) or ({},))


def distinct(contenders: Sequence[Contender]) -> None:
    """Raises ConfigError where one is given twice."""
    seen: set[str] = set()
    for contender in contenders:
        if contender.label in seen:
            raise ConfigError(f"methods: {contender.label} is given twice; give each once, variants as NAME:key=value")
        seen.add(contender.label)
