"""The plan of the field: settings in a YAML file, which says what its keys mean."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.config.keys import flat, nest
from fedbench.config.tuning import ComparisonTuning
from fedbench.errors import ConfigError, nearest
from fedbench.studies.space import Values
from fedbench_papers.image_sources import source_keys

PLAN = Path(__file__).with_name("plan.yaml")
PLACE = re.compile(r"\{(\w+)\}")
"""The place of a set in a value of the configuration."""


class FieldSetting(BaseModel):
    """A setting of the plan, see plan.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    like: str
    kind: str
    config: dict[str, Any]
    hours: float | None = None
    base: str | None = None
    scores: Literal["clients", "newcomers"] = "clients"


class FieldPlan(BaseModel):
    """All settings by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tuning: dict[str, Any] = Field(default_factory=dict)
    common: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, FieldSetting] = Field(min_length=1)

    @classmethod
    def read(cls, file: Path = PLAN) -> "FieldPlan":
        """Raises ConfigError for a file that is no plan."""
        if not file.is_file():
            raise ConfigError(f"--plan {file}: no such file")
        try:
            plan = cls.model_validate(load_yaml(file))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{file}: {where}: {first['msg'].lower()}; its keys are those of {PLAN}") from None
        for name, setting in plan.settings.items():
            if setting.base is not None and (setting.base not in plan.settings or plan.settings[setting.base].base):
                raise ConfigError(f"{file}: {name}: base = {setting.base}: no setting that has no base itself")
        plan.comparison_tuning()
        return plan

    def comparison_tuning(self) -> ComparisonTuning:
        """How every comparison is tuned and judged. Raises ConfigError."""
        return ComparisonTuning(**self.tuning)

    def sets(self) -> list[str]:
        """The names of the sets whose places the plan leaves open."""
        values = (value for setting in self.settings.values() for value in flat(setting.config).values())
        return sorted({known[1] for value in values if isinstance(value, str) and (known := PLACE.fullmatch(value))})

    def tree(self, name: str) -> dict[str, Any]:
        """The keys of a setting with those of its base and of all settings."""
        own, tree = self.settings[name], dict(self.common)
        for config in (self.settings[own.base].config if own.base else {}, own.config):
            for key, value in config.items():
                if isinstance(value, dict):
                    is_another = "name" in value and "name" in tree.get(key, {})
                    tree[key] = {**(self.common if is_another else tree).get(key, {}), **value}
                else:
                    tree[key] = value
        return tree

    def config(self, name: str, sources: Mapping[str, str], keys: Values | None = None) -> Config:
        """The configuration of a setting. sources: of sets by name; keys: set last. Raises ConfigError."""
        placed: Values = {}
        for key, value in flat(self.tree(name)).items():
            known = PLACE.fullmatch(value) if isinstance(value, str) else None
            if known is None:
                placed[key] = value
            elif key == "data.name":
                placed |= source_keys(known[1], sources)
            elif known[1] in sources:
                placed[key] = str(Path(sources[known[1]]).expanduser().absolute())
            else:
                raise ConfigError(f"setting {name}: where is {known[1]}? Give --sources {known[1]}=FOLDER")
        return Config(**nest({**placed, **(keys or {})}))

    def choose(self, only: Sequence[str]) -> list[str]:
        """The names of settings in the order of the plan, `all` for every one. Raises ConfigError."""
        for name in only:
            if name != "all" and name not in self.settings:
                raise ConfigError(f"--only {name}: no such setting; {nearest(name, [*self.settings])}")
        return [name for name in self.settings if name in only or "all" in only]


def part_of(names: Sequence[str], shard: str) -> list[str]:
    """Those of a shard such as `2/5`: every fifth name, from the second on. Raises ConfigError."""
    known = re.fullmatch(r"(\d+)/(\d+)", shard)
    if known is None or not 1 <= int(known[1]) <= int(known[2]):
        raise ConfigError(f"--shard {shard}: must be K/N with 1 <= K <= N, for example 2/5, the second of five parts")
    part = list(names[int(known[1]) - 1 :: int(known[2])])
    if not part:
        raise ConfigError(f"--shard {shard}: there are {len(names)} settings, and none in this part")
    return part
