"""Facts of a study for its protocol: its methods and configurations, and which keys are tuned or vary."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbench.report.study import Study
from fedbench.report.typeset import join_words


@dataclass(frozen=True)
class Facts:
    """The facts of a study that sentences state. over, missing: as of `protocol.sentences`."""

    study: Study
    names: Mapping[str, str]
    over: Mapping[str, Sequence[Any]]
    missing: int = 0

    @cached_property
    def labels(self) -> list[str]:
        """The methods, also those without a score."""
        return [*dict.fromkeys([*self.study.ordered, *self.study.plan.labels()])]

    def called(self, labels: Iterable[str]) -> str:
        """The names of methods in words."""
        return join_words(sorted(self.names.get(label, label) for label in labels))

    def section(self, name: str) -> dict[str, Any]:
        """A section of the configuration, without the keys that vary."""
        tree = dict(self.study.config.get(name) or {})
        return {key: value for key, value in tree.items() if not self.varies(f"{name}.{key}")}

    def varies(self, key: str) -> bool:
        """Whether a key differs between settings, by itself, as its section's name, or as one of a value's keys."""
        section, _, name = key.partition(".")
        whole = self.over.get(section, [])
        return key in self.over or (bool(whole) and (name in ("", "name") or any(_has(value, name) for value in whole)))

    @cached_property
    def environments(self) -> dict[str, dict[str, Any]]:
        return {label: run.environment() for label, run in self.study.runs.items()}

    @cached_property
    def pooled(self) -> list[str]:
        """The methods that train one model on the data of all clients."""
        return [label for label, environment in self.environments.items() if environment.get("pooled")]

    @cached_property
    def configs(self) -> dict[str, dict[str, Any]]:
        """The configurations of final runs."""
        return {label: run.config() for label, run in self.study.runs.items()}

    @cached_property
    def train(self) -> dict[str, dict[str, Any]]:
        """By method, the section `train`; that of the plan where nothing has run."""
        sections = {label: dict(config.get("train") or {}) for label, config in self.configs.items()}
        return sections or {self.study.method: dict(self.study.plan.config.get("train") or {})}

    def tuned(self, key: str) -> list[str]:
        """The methods that are tuned over a key of `train`."""
        spaces = self.study.plan.spaces
        return [label for label in self.labels if len(spaces.get(label, {}).get(f"train.{key}", [])) > 1]

    @cached_property
    def tuned_methods(self) -> list[str]:
        """The methods that have several candidates."""
        labels = dict.fromkeys(entry.label for entry in self.study.plan.entries if entry.role == "candidate")
        return [label for label in labels if len(self.study.plan.points(label)) > 1]

    def usual(self, key: str) -> Any:
        """The value of a key of `train` that most methods have without tuning it; None if it has none."""
        values = [section.get(key) for label, section in self.train.items() if label not in self.tuned(key)]
        return Counter(map(_hashable, values)).most_common(1)[0][0] if values else None

    def others(self, key: str) -> dict[str, Any]:
        """By method, values of a key of `train` that differ from the usual one, without tuning."""
        if self.varies(f"train.{key}"):
            return {}
        fixed = {label: section.get(key) for label, section in self.train.items() if label not in self.tuned(key)}
        return {label: value for label, value in fixed.items() if _hashable(value) != self.usual(key)}

    def stated(self, key: str, name: str) -> str:
        """`momentum 0.5`, `momentum tuned`, `momentum varied`, or `momentum 0.5 unless tuned`."""
        if self.varies(f"train.{key}"):
            return f"{name} varied"
        tuned, value = self.tuned(key), self.usual(key)
        if tuned and len(tuned) >= len(self.train):
            return f"{name} tuned"
        if not isinstance(value, int | float):
            return ""
        return f"{name} {value:g} unless tuned" if tuned else f"{name} {value:g}"


def _has(value: Any, name: str) -> bool:
    return isinstance(value, Mapping) and name in value


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
