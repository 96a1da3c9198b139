"""The claims as data: the YAML files beside this module, one per paper, one across papers, one
of proxies, and one of settings.

A row: statement, where and effect as published; `setting` and `seeds`; `common` keys of all arms; `arms` by label, each
a method with dotted keys, optionally in another setting (`in`), on its own seeds, or tuned over learning rates
(`tune`); `uses`: rows whose runs it reads; `choose`: an extra seed that selects the best of several arms; `parts`:
evaluated by `judge.py`; `open`: decisions that the claim leaves open; `far`: in what the setting is far from the
paper's protocol; `attempts`: how often it was judged, each time on other seeds, because the time before had left it
open; `reason`: why it cannot be run; `readings`: by name, other ways to read the paper: keys for the arms of a method,
or of `all`, and what is `open` in this reading and its `attempts`; `combinations`: by method, options on which the
paper leaves a choice, each with its values, first the one that counts: every combination is a reading.

The row as written is the reading that counts. Each other one is a row `ID-READING` with the same statement, seeds and
parts, which is shown beside it and not counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
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

CLAIM_FILES = ("co-pfl", "fedobp", "fedcac", "fedmosaic", "across", "proxies")
SETTINGS = "settings"
HELD_OUT = 0.2
"""Share of the training images for validation in tuning."""
DATA = {"cifar10": "cifar10", "cifar10_jpeg": "cifar10", "fmnist": "fmnist", "pacs": "pacs", "digits": "digits"}
"""The data sets of settings, and their default sources."""
ARM = ("method", "in", "seeds", "tune")


@dataclass(frozen=True)
class Row:
    """A claim and its test. arm_keys: the keys that each arm adds to its setting. reading: its name, if another row
    counts, and reading_of: the id of that row. combination: the value of every option on which the paper leaves a
    choice, by its name without `method.`; none if the reading is no combination.
    """

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
    far: str = ""
    attempts: int = 1
    reason: str = ""
    arm_keys: Mapping[str, Values] = field(default_factory=dict)
    reading: str = ""
    reading_of: str = ""
    combination: Mapping[str, Any] = field(default_factory=dict)

    def runs(self) -> Iterator[tuple[Config, int]]:
        """Its runs: configuration and seed."""
        for method in self.arms:
            yield from method.runs(Config(), self.seeds, TUNE_SEEDS)


def load_rows(
    sources: Mapping[str, str] | None = None, keys: Values | None = None, conditions: Conditions | None = None
) -> dict[str, Row]:
    """Every row by id, in the order of the papers, each before its other readings. sources: of the sets; keys: set
    last, for all arms.
    """
    conditions = conditions or Conditions()
    placed = {name: source_keys(known, {known: (sources or {}).get(name, known)}) for name, known in DATA.items()}
    rows: dict[str, Row] = {}
    for file in CLAIM_FILES:
        for name, tree in load_file(file).items():
            for reading in ("", *readings_in(tree)):
                row = f"{name}-{reading}" if reading else name
                more = {"wandb.group": f"{conditions.folder}/{row}", **(keys or {})}
                rows[row] = row_of(name, tree, placed, more, conditions, reading)
    return rows


@cache
def load_file(name: str) -> dict[str, Any]:
    return load_yaml(Path(__file__).with_name(f"{name}.yaml"))


def row_of(
    name: str,
    tree: Mapping[str, Any],
    placed: Mapping[str, Values],
    keys: Values,
    conditions: Conditions,
    reading: str = "",
) -> Row:
    """The row, or one of its other readings."""
    seeds, choose = conditions.seeds or tuple(tree["seeds"]), tree.get("choose")
    other = readings_in(tree)[reading] if reading else {}
    arms, arm_keys = [], {}
    for label, arm in (tree.get("arms") or {}).items():
        given = {**(tree.get("common") or {}), **arm}
        given = arm_keys[label] = {**given, **other.get("all", {}), **other.get(given["method"], {})}
        all_seeds = (conditions.seeds or tuple(given.get("seeds", seeds))) + ((choose,) if choose is not None else ())
        arms.append(arm_of(label, given, given.get("in", tree["setting"]), all_seeds, placed, keys, conditions))
    more = {
        key: tree[key] for key in ("statement", "where", "effect", "setting", "parts", "far", "reason") if key in tree
    }
    more |= {"uses": tuple(tree.get("uses") or ()), "open": (*(tree.get("open") or ()), *other.get("open", ()))}
    more |= {"attempts": (other if reading else tree).get("attempts", 1)}
    more |= {"reading": reading, "reading_of": name} if reading else {}
    combined = other.get("combination", {}) if reading else next(combinations_in(tree), {})
    more |= {"combination": {short(key): value for values in combined.values() for key, value in values.items()}}
    row = f"{name}-{reading}" if reading else name
    return Row(row, seeds=seeds, arms=tuple(arms), choose=choose, arm_keys=arm_keys, **more)


def readings_in(tree: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The other readings of a row by name: those with a name of their own, then all combinations but the first."""
    readings = dict(tree.get("readings", {}))
    for combined in [*combinations_in(tree)][1:]:
        keys = {short(key): value for values in combined.values() for key, value in values.items()}
        readings["+".join(f"{key}={value}" for key, value in keys.items())] = {**combined, "combination": combined}
    return readings


def combinations_in(tree: Mapping[str, Any]) -> Iterator[dict[str, Values]]:
    """Every combination of what the paper leaves open, as keys by method, first the one that counts."""
    options = [
        (method, key, values) for method, keys in tree.get("combinations", {}).items() for key, values in keys.items()
    ]
    for chosen in product(*(values for _, _, values in options)) if options else ():
        combined: dict[str, dict[str, Any]] = {}
        for (method, key, _), value in zip(options, chosen, strict=True):
            combined.setdefault(method, {})[key] = value
        yield combined


def short(key: str) -> str:
    """An option without the word before it."""
    return key.removeprefix("method.")


def arm_of(
    label: str,
    arm: Mapping[str, Any],
    setting: str,
    seeds: tuple[int, ...],
    placed: Mapping[str, Values],
    keys: Values,
    conditions: Conditions,
) -> ComparedMethod:
    """An arm: the keys of its setting, of the setting for its method, its own, and what the conditions change."""
    settings, method = load_file(SETTINGS)[setting], arm["method"]
    arm_keys = {key: value for key, value in arm.items() if key not in ARM}
    given = {**flat_config(settings["config"]), **(settings.get("methods") or {}).get(method, {}), **arm_keys}
    given |= placed[given["data.name"]]
    given = {**conditions.of(given), **keys}
    points = tuple({"train.lr": rate} for rate in arm.get("tune") or ()) or ({},)
    trial = {"data.val": HELD_OUT, "rounds": max(1, given["rounds"] // 3)} if "tune" in arm else {}
    return ComparedMethod(label, method, given, points, trial, seeds)


def select_rows(rows: Mapping[str, Row], only: Sequence[str], readings: str = "") -> list[Row]:
    """The rows of these ids, or `all` that count; with readings `all`, each with its others. Raises ConfigError."""
    if readings not in ("", "all"):
        raise ConfigError(f"--readings {readings}: must be all; a single reading is a row, such as --only C1-literal")
    names = [name for name, row in rows.items() if not row.reading_of] if list(only) == ["all"] else only
    for name in names:
        if name not in rows:
            raise ConfigError(f"--only {name}: unknown row; {nearest(name, rows)}")
    chosen = [row for name in names for row in (name, *(readings_of(rows, name) if readings else ()))]
    return [rows[name] for name in dict.fromkeys(chosen)]


def readings_of(rows: Mapping[str, Row], name: str) -> list[str]:
    """The ids of a row's other readings."""
    return [label for label, row in rows.items() if row.reading_of == name]


def new_runs(row: Row, known: set[tuple[str, int]]) -> list[Config]:
    """The configurations of runs, once per seed, that no earlier row has; adds these to the known ones."""
    runs = {(config.key(), seed): config for config, seed in row.runs()}
    new = [config for run, config in runs.items() if run not in known]
    known.update(runs)
    return new
