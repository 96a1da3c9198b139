"""An axis of a study: a key with values or a distribution of Ray Tune, and which keys axes may have."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench import tune_space
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.config.section import plain
from fedbench.config.words import keys_called
from fedbench.errors import ConfigError, nearest
from fedbench.installation import require
from fedbench.results.plan import text_of

DISTRIBUTIONS = ("uniform", "quniform", "loguniform", "qloguniform", "randint", "qrandint", "lograndint", "choice")
DIGITS = 4
"""Significant digits of a drawn number."""
METHOD_AND_KEY = re.compile(r"(?:.*?:)??\w+\.\w+(?==)")
"""`train.lr` or `METHOD:train.lr` before its values; the name of a variant has `=` in it too."""


@dataclass(frozen=True)
class Role:
    """What keys are for: which of them a study may try, vary between settings, or set for one variant.

    flag: names them in errors. sections: those whose keys are legal; whole: whether also a section itself is one.
    fixed: keys of these sections that are not. rule: what to say of illegal keys, after the key.
    """

    flag: str
    sections: tuple[str, ...]
    rule: str
    fixed: tuple[str, ...] = ()
    whole: bool = False

    def takes(self, key: str) -> bool:
        """Whether a key is legal."""
        section, dot, _ = key.partition(".")
        return section in self.sections and key not in self.fixed and (bool(dot) or self.whole)

    def check(self, key: str, options: Collection[str] = (), text: str = "") -> None:
        """Raises ConfigError for an illegal key.

        options: names of options of the method, which may lack `method.`. text: in which the key was written.
        """
        if self.takes(key):
            return
        where = f"{self.flag}: {text}: {key}" if text else f"{self.flag}: {key}"
        names = (*([f"method.{key}"] if key in options else []), *keys_called(key, Config))
        if meant := list(filter(self.takes, names)):
            raise ConfigError(f"{where}: names no section; write {' or '.join(meant)}")
        raise ConfigError(f"{where}: {self.rule.format(key=key)}")


SEARCHED = Role(
    "space",
    ("method", "train", "model"),
    "keys of method.*, train.* and arguments of the model's constructor, model.*, are searched; all else is the same "
    "for all candidates; leave it out, or set one value with --{key}",
    fixed=("method.name", *(f"model.{key}" for key in type(Config().model).model_fields)),
)
VARIED = Role(
    "over",
    (
        *("data", "partition", "public", "model", "train", "rounds", "participation"),
        *("dropout", "stragglers", "attack", "compression", "privacy", "aggregator", "method"),
    ),
    "settings are combinations of data, partition, public, model, train, rounds, participation, dropout, stragglers, "
    "attack, compression, privacy, aggregator and options of methods (method.KEY); methods go into --methods, with "
    "variants as NAME:key=value",
    fixed=("method", "method.name"),
    whole=True,
)
OF_VARIANT = Role(
    "methods",
    ("method", "train", "aggregator"),
    "must be the same for all that are compared; a variant sets keys of method, train and aggregator, and --over "
    "compares in several settings, --over {key}=V1,V2",
)
"""All else is the same for all methods, so that their runs form pairs."""


@dataclass(frozen=True)
class Axis:
    """A key with several values, or with a distribution of Ray Tune."""

    key: str
    values: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", plain(tune_space.as_list(self.values)))

    @classmethod
    def parse(cls, text: str, flag: str) -> "Axis":
        """`KEY=V1,V2`, `METHOD:KEY=V1,V2` or `KEY=loguniform(1e-4, 1e-1)`. Raises ConfigError, which names the flag."""
        start = match.end() if (match := METHOD_AND_KEY.match(text)) else 0
        _, equals, values = text[start:].partition("=")
        key = text[: len(text) - len(equals) - len(values)]
        if not (key and equals and values):
            raise ConfigError(f"--{flag} {text}: give a key and its values, for example --{flag} train.epochs=1,5")
        listed = values if values.startswith("[") else f"[{values}]"
        return cls(key, distribution(values, flag) or parse_value(listed))

    @property
    def is_listed(self) -> bool:
        """Whether it has values, and no distribution."""
        return isinstance(self.values, list)

    def text(self, between: str = ", ") -> str:
        """The values with something between them, or the distribution as `LogUniform(0.0001, 0.1)`."""
        if self.is_listed:
            return between.join(map(text_of, self.values))
        sampler = self.values.get_sampler()
        step = f" step {sampler.q:g}" if hasattr(sampler, "q") else ""
        return f"{getattr(sampler, 'sampler', sampler)}{self.values.domain_str}{step}"

    @property
    def domain(self) -> Any:
        """The distribution of Ray Tune for Optuna."""
        from ray import tune

        return tune.choice(self.values) if self.is_listed else self.values

    def draw(self, stream: np.random.RandomState) -> Any:
        """One of the values, or a number of the distribution."""
        if self.is_listed:
            return self.values[stream.randint(len(self.values))]
        return self.rounded(self.values.sample(random_state=stream))

    def rounded(self, value: Any) -> Any:
        """A drawn number with the digits that a name shows, within the bounds."""
        if self.is_listed or not isinstance(value, float):
            return value
        short = float(f"{value:.{DIGITS}g}")
        return short if self.values.is_valid(short) else value

    def holds(self, value: Any) -> bool:
        """Whether it is one of the values, or within the distribution."""
        return value in self.values if self.is_listed else bool(self.values.is_valid(value))

    def check_different(self) -> None:
        """Raises ConfigError for a list that is empty or has a value twice."""
        if self.is_listed and (not self.values or len(set(map(text_of, self.values))) < len(self.values)):
            raise ConfigError(
                f"space: {self.key} = {self.values}: must be one or more different values; give each once"
            )


def distribution(text: str, flag: str = SEARCHED.flag) -> Any:
    """Ray Tune's distribution for `loguniform(1e-4, 1e-1)`; None if the text is no such call.

    Raises ConfigError, which names the flag.
    """
    name, bracket, inside = text.strip().removeprefix("tune.").partition("(")
    if not bracket or not name.isidentifier():
        return None
    if name not in DISTRIBUTIONS:
        raise ConfigError(f"{flag}: {text}: unknown distribution {name!r}: {nearest(name, DISTRIBUTIONS)}")
    require("ray", f"list values instead of {text}")
    from ray import tune

    expected = "as Ray Tune has it, for example loguniform(1e-4, 1e-1)"
    if not inside.endswith(")"):
        raise ConfigError(f"{flag}: {text}: it does not end with a bracket; {expected}")
    arguments = parse_value(f"[{inside[:-1]}]")
    try:
        made = getattr(tune, name)(*([arguments] if name == "choice" else arguments))
    except ArithmeticError:
        raise ConfigError(f"{flag}: {text}: the step must be > 0; {expected}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{flag}: {text}: {error}; {expected}") from None
    if "randint" in name and not all(isinstance(number, int) for number in arguments):
        raise ConfigError(f"{flag}: {text}: whole numbers are expected; {expected}")
    if name != "choice" and not made.lower < made.upper:
        raise ConfigError(f"{flag}: {text}: the first bound must be below the second; {expected}")
    return tune_space.as_list(made)


def check_values(axes: Mapping[Any, Any]) -> None:
    """Raises ConfigError if keys are no text, or if values are neither several nor a distribution."""
    if not axes:
        raise ConfigError(
            'space = {}: names no key; leave it out, or list values, for example {"train.lr": [0.01, 0.1]}'
        )
    for key, values in axes.items():
        if not isinstance(key, str) or not tune_space.is_axis(values):
            raise ConfigError(
                f"space: {key} = {values!r}: a key with a list of values or a distribution is expected, for example "
                '{"train.lr": [0.01, 0.1]}'
            )
