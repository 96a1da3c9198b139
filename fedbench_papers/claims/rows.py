"""The claims as data: the YAML files beside this module, one per paper, one across papers, and one of settings.

A row: statement, where and effect as published; `setting` and `seeds`; `common` keys of all arms; `arms` by label, each
a method with dotted keys, optionally in another setting (`in`), on its own seeds, or tuned over learning rates
(`tune`); `uses`: rows whose runs it reads; `choose`: an extra seed that selects the best of several arms; `parts`:
evaluated by `judge.py`; `open`: decisions that the claim leaves open; `reason`: why it cannot be run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedbench.cli.flags import flat_config
from fedbench.config import Config
from fedbench.config.files import load_yaml
from fedbench.errors import ConfigError, nearest
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.space import Values
from fedbench_papers import TUNE_SEEDS
from fedbench_papers.claims.conditions import Conditions
from fedbench_papers.image_sources import source_keys

CLAIM_FILES = ("co-pfl", "fedobp", "fedcac", "fedmosaic", "across")
SETTINGS = "settings"
HELD_OUT = 0.2
"""Share of the training images for validation in tuning."""
DATA = {"cifar10": "cifar10", "cifar10_jpeg": "cifar10", "fmnist": "fmnist", "pacs": "pacs"}
"""The data sets of settings, and their default sources."""
ARM = ("method", "in", "seeds", "tune")


@dataclass(frozen=True)
class Row:
    """A claim and its test. arm_keys: the keys that each arm adds to its setting."""

    id: str
    statement: str
    where: str
    effect: str
    setting: str
    seeds: tuple[int, ...]
    arms: tuple[ComparedMethod, ...]
    parts: Mapping[str, Mapping[str, Any]]
    uses: tuple[str, ...] = ()
    choose: int | None = None
    open: tuple[str, ...] = ()
    reason: str = ""
    arm_keys: Mapping[str, Values] = field(default_factory=dict)

    def runs(self) -> Iterator[tuple[Config, int]]:
        """Its runs: configuration and seed."""
        for method in self.arms:
            yield from method.runs(Config(), self.seeds, TUNE_SEEDS)


def load_rows(
    sources: Mapping[str, str] | None = None, keys: Values | None = None, conditions: Conditions | None = None
) -> dict[str, Row]:
    """Every row by id, in the order of the papers. sources: of the sets; keys: set last, for all arms."""
    conditions = conditions or Conditions()
    placed = {name: source_keys(known, {known: (sources or {}).get(name, known)}) for name, known in DATA.items()}
    found: dict[str, Row] = {}
    for file in CLAIM_FILES:
        for name, tree in load_file(file).items():
            more = {"wandb.group": f"{conditions.folder}/{name}", **(keys or {})}
            found[name] = row_of(name, tree, placed, more, conditions)
    return found


@cache
def load_file(name: str) -> dict[str, Any]:
    return load_yaml(Path(__file__).with_name(f"{name}.yaml"))


def row_of(
    name: str, tree: Mapping[str, Any], placed: Mapping[str, Values], keys: Values, conditions: Conditions
) -> Row:
    seeds, choose = conditions.seeds or tuple(tree["seeds"]), tree.get("choose")
    arms, told = [], {}
    for label, own in (tree.get("arms") or {}).items():
        asked = told[label] = {**(tree.get("common") or {}), **own}
        wanted = (conditions.seeds or tuple(asked.get("seeds", seeds))) + ((choose,) if choose is not None else ())
        arms.append(arm_of(label, asked, asked.get("in", tree["setting"]), wanted, placed, keys, conditions))
    more = {key: tree[key] for key in ("statement", "where", "effect", "setting", "parts", "reason") if key in tree}
    more |= {key: tuple(tree.get(key) or ()) for key in ("uses", "open")}
    return Row(name, seeds=seeds, arms=tuple(arms), choose=choose, arm_keys=told, **more)


def arm_of(
    label: str,
    asked: Mapping[str, Any],
    setting: str,
    seeds: tuple[int, ...],
    placed: Mapping[str, Values],
    keys: Values,
    conditions: Conditions,
) -> ComparedMethod:
    """An arm: the keys of its setting, of the setting for its method, its own, and what the conditions change."""
    place, method = load_file(SETTINGS)[setting], asked["method"]
    own = {key: value for key, value in asked.items() if key not in ARM}
    given = {**flat_config(place["config"]), **(place.get("methods") or {}).get(method, {}), **own}
    given |= placed[given["data.name"]]
    given = {**conditions.of(given), **keys}
    points = tuple({"train.lr": rate} for rate in asked.get("tune") or ()) or ({},)
    trial = {"data.val": HELD_OUT, "rounds": max(1, given["rounds"] // 3)} if "tune" in asked else {}
    return ComparedMethod(label, method, given, points, trial, seeds)


def select_rows(rows: Mapping[str, Row], only: Sequence[str]) -> list[Row]:
    """The rows of these ids, or all. Raises ConfigError."""
    if list(only) == ["all"]:
        return list(rows.values())
    for name in only:
        if name not in rows:
            raise ConfigError(f"--only {name}: unknown row; {nearest(name, rows)}")
    return [rows[name] for name in dict.fromkeys(only)]


def new_runs(row: Row, known: set[tuple[str, int]]) -> list[Config]:
    """The configurations of runs, once per seed, that no earlier row has; adds these to the known ones."""
    found = {(config.key(), seed): config for config, seed in row.runs()}
    new = [config for run, config in found.items() if run not in known]
    known.update(found)
    return new
