"""An experiment of a paper: its protocol, its cells, and their published numbers."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedbench.cli.flags import flat_config
from fedbench.config.files import load_yaml
from fedbench.errors import ConfigError, nearest
from fedbench.results.tables import LAST
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.space import Space, Values
from fedbench_papers.tables.figure import Figure

EXPERIMENTS_FOLDER = Path(__file__).parent
SCALES = ("full", "small")
AFTER_AGG = "after_agg"
POINTS = (AFTER_AGG, "after_fit")
ACCURACIES = ("accuracy", "accuracy_best_round")
"""Metrics to compare runs with."""
AS_WRITTEN = ("methods", "tune", "trial", "batches", "pooled", "points", "choice", "repeats", "open")
"""Entries of a file that an experiment takes over unchanged."""
ABOUT_CELL = ("client", "points")
"""Entries of a cell that are no keys of its runs."""


@dataclass(frozen=True)
class Number:
    """A published number: a line of published.csv, in percent as printed."""

    table: str
    dataset: str
    setting: str
    method: str
    mean: float
    std: float | None


@dataclass(frozen=True)
class TracedNumber:
    """A published number that runs trace, in the unit as printed. trace: its name; times: the factor to that unit."""

    table: str
    dataset: str
    setting: str
    method: str
    what: str
    mean: float
    trace: str
    times: float


@dataclass(frozen=True)
class ExperimentCell:
    """A data set in a setting. values: keys for all; own: for a method or label; client: of the numbers; points: of
    evaluation of its published numbers by method, where they are others than the experiment's.
    """

    dataset: str
    setting: str
    values: Values
    own: Mapping[str, Values]
    client: int | None = None
    points: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.dataset}, {self.setting}"

    def has(self, number: Number | TracedNumber) -> bool:
        """Whether a published number is one of this cell."""
        return (number.dataset, number.setting) == (self.dataset, self.setting)


@dataclass(frozen=True)
class Experiment:
    """An experiment from its file; `config` and `small` by dotted key. reading: keys of a reading for one method."""

    id: str
    what: str
    config: Values
    cells: tuple[ExperimentCell, ...]
    small: ExperimentCell
    numbers: tuple[Number, ...]
    traced: tuple[TracedNumber, ...]
    reading: Mapping[str, Values]
    methods: Mapping[str, str] = field(default_factory=dict)
    tune: Mapping[str, Mapping[str, list[Any]]] = field(default_factory=dict)
    trial: Values = field(default_factory=dict)
    batches: Sequence[str] = ()
    pooled: bool = False
    points: Mapping[str, str] = field(default_factory=dict)
    choice: str = LAST
    repeats: int | None = None
    open: Sequence[str] = ()
    figure: Figure | None = None

    @classmethod
    def load(cls, name: str) -> "Experiment":
        """Raises ConfigError for an unknown name."""
        known = [*names(), *figures()]
        if name not in known:
            raise ConfigError(f"{name}: no published experiment; {nearest(name, known)} (`fedbench reproduce`: all)")
        paper, reading = _readings().get(name, (name, ""))
        tree = _tree(paper)
        written = {key: tree[key] for key in AS_WRITTEN if key in tree}
        return cls(
            id=name,
            what=f"{tree['what']}, {reading} reading" if reading else tree["what"],
            config=flat_config(tree.get("config", {})),
            cells=tuple(_cell(cell_name, values) for cell_name, values in tree.get("cells", {}).items()),
            small=_cell("small, ", tree.get("small", {})),
            numbers=numbers(paper),
            traced=traced_numbers(paper, tree.get("traced", {})),
            reading={m: flat_config(values) for m, values in tree.get("readings", {}).get(reading, {}).items()},
            figure=Figure.of(tree["figure"]) if "figure" in tree else None,
            **written,
        )

    def of(self, cell: ExperimentCell) -> list[Number]:
        """The published accuracies of a cell."""
        return list(filter(cell.has, self.numbers))

    def traced_of(self, cell: ExperimentCell) -> list[TracedNumber]:
        """The published numbers of a cell that runs trace."""
        return list(filter(cell.has, self.traced))

    def point_of(self, label: str, cell: ExperimentCell) -> str:
        """The evaluation point that a method's published number in a cell is of."""
        return cell.points.get(label, self.points.get(label, AFTER_AGG))

    def select_cells(self, words: Sequence[str]) -> list[ExperimentCell]:
        """The cells of these names or data sets, or with one of these words in their names; all without words.

        A word may list several with commas, or be a name that has commas. Raises ConfigError for a word without cells.
        """
        cells = []
        for word in (part for text in words for part in self._split_cells(text)):
            by_name = [cell for cell in self.cells if word == cell.name]
            by_data = [cell for cell in self.cells if word == cell.dataset]
            matching = by_name or by_data or [cell for cell in self.cells if word in cell.name]
            if not matching:
                known = "; ".join(cell.name for cell in self.cells)
                raise ConfigError(f"--cells {word}: no cell of {self.id}; it has {known}")
            cells += matching
        return [cell for cell in self.cells if not words or cell in cells]

    def _split_cells(self, text: str) -> list[str]:
        """The words of a list with commas; names that have commas stay whole, as does a part of one."""
        names = [cell.name for cell in self.cells]
        if text not in names and any(text in name for name in names):
            return [text]
        parts, words = [part.strip() for part in text.split(",")], list[str]()
        while parts:
            ends = range(len(parts), 0, -1)
            count = next((end for end in ends if ", ".join(parts[:end]) in names), 1)
            words.append(", ".join(parts[:count]))
            del parts[:count]
        return [word for word in words if word]

    def select_methods(self, words: Sequence[str], cells: Sequence[ExperimentCell], scale: str) -> list[str]:
        """The labels in these cells that are one of these words or begin with one, as a method with options does; all
        without words. Raises ConfigError for a word without labels.
        """
        known = list(dict.fromkeys(one.label for cell in cells for one in self.compared_methods(cell, scale)))
        labels = []
        for word in words:
            matching = [label for label in known if word == label] or [x for x in known if word == x.partition(" ")[0]]
            if not matching:
                has = f"it has {', '.join(known)}" if known else "no method is trained for it"
                raise ConfigError(f"--methods {word}: no method of {self.id}; {has}")
            labels += matching
        return [label for label in known if not words or label in labels]

    def compared_methods(self, cell: ExperimentCell, scale: str, given: Sequence[str] = ()) -> list[ComparedMethod]:
        """The methods of a cell. given: keys set by the user, which are not tuned."""
        if self.figure is not None:
            if self.figure.over in given:
                raise ConfigError(f"--{self.figure.over}: {self.id} varies it, so it cannot be set")
            runs = self.figure.runs(scale)
            return [self._compared_method(label, text, cell, scale, given, own) for label, (text, own) in runs.items()]
        texts = {
            number.method: self.methods.get(number.method, number.method.partition(" ")[0]) for number in self.of(cell)
        }
        return [self._compared_method(label, text, cell, scale, given, {}) for label, text in texts.items()]

    def _compared_method(
        self, label: str, text: str, cell: ExperimentCell, scale: str, given: Sequence[str], keys: Values
    ) -> ComparedMethod:
        """A method of a cell. keys: those that are set last."""
        named = ComparedMethod.parse(text)
        fixed = {**named.fixed, **self.reading.get(named.name, {})}
        for part in (cell, self.small) if scale == "small" else (cell,):
            fixed |= {**part.own.get("*", {}), **part.own.get(named.name, {}), **part.own.get(label, {})}
        if named.name in self.batches or "*" in self.batches:
            fixed["evaluate.accuracy"] = "batches"
            fixed["evaluate.batch_size"] = self.config["train.batch_size"]
        fixed = {key: value for key, value in {**fixed, **keys}.items() if key not in given}
        axes = dict(self.tune.get(named.name, self.tune.get("*", {})))
        space = Space(axes).without({**dict.fromkeys(given), **fixed})
        return replace(named, label=label, fixed=fixed, points=tuple(space.points()), trial=self.trial)

    def values(self, cell: ExperimentCell, scale: str) -> Values:
        """The keys for all methods of a cell."""
        return {**self.config, **cell.values, **(self.small.values if scale == "small" else {})}


def names() -> list[str]:
    """The experiments by paper; those with two readings have both."""
    return list(_readings())


def figures() -> list[str]:
    """The figures by paper, as `fedcac/figure-3`, in order of their numbers; then those of what a paper leaves open."""
    labels = [f"{file.parent.name}/{file.stem}" for file in EXPERIMENTS_FOLDER.glob("*/figure-*.yaml")]
    papers = list(dict.fromkeys(name.partition("/")[0] for name in names()))
    return sorted(labels, key=lambda name: (papers.index(name.partition("/")[0]), _place(name.rpartition("-")[2])))


def _place(number: str) -> tuple[bool, int, str]:
    """The place of a figure among those of its paper."""
    return (False, int(number), "") if number.isdigit() else (True, 0, number)


@cache
def _readings() -> dict[str, tuple[str, str]]:
    """The published experiment of a name and, if there are several, its reading."""
    readings: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys(row["experiment"] for row in _rows()):
        first, *others = _tree(name).get("readings", {"": {}})
        readings |= {name: (name, first)} | {f"{name}-{other}": (name, other) for other in others}
    return readings


def sets() -> list[str]:
    """The image sets of cells."""
    return sorted({cell.dataset for name in (*names(), *figures()) for cell in Experiment.load(name).cells})


def numbers(name: str) -> tuple[Number, ...]:
    """The published accuracies of an experiment; a number in two tables counts once."""
    by_place: dict[tuple[str, str, str], Number] = {}
    for row in _rows():
        if row["experiment"] == name and row["metric"] in ACCURACIES:
            key, std = (row["dataset"], row["setting"], row["method"]), float(row["std"]) if row["std"] else None
            by_place.setdefault(key, Number(row["table"], *key, float(row["mean"]), std))
    return tuple(by_place.values())


def traced_numbers(name: str, readings: Mapping[str, Mapping[str, Any]]) -> tuple[TracedNumber, ...]:
    """The published numbers of some metrics. readings: by metric, `trace`, `times` if not 1, `of` if of another one."""
    return tuple(
        TracedNumber(
            row["table"],
            row["dataset"],
            row["setting"],
            row["method"],
            row["metric"].replace("_", " "),
            float(row["mean"]),
            readings[row["metric"]]["trace"],
            readings[row["metric"]].get("times", 1.0),
        )
        for row in _rows()
        if row["metric"] in readings and row["experiment"] == readings[row["metric"]].get("of", name)
    )


@cache
def _rows() -> list[dict[str, str]]:
    """The lines of published.csv; the experiment is PAPER/EXPERIMENT, and the method has its options behind it."""
    with open(EXPERIMENTS_FOLDER / "published.csv", newline="") as file:
        return [
            {
                **row,
                "experiment": f"{row['paper']}/{row['experiment']}",
                "method": f"{row['method']} {row['options']}".strip(),
            }
            for row in csv.DictReader(file)
        ]


def _tree(name: str) -> dict[str, Any]:
    """A file, merged into the one that it extends."""
    tree_of_file = load_yaml(EXPERIMENTS_FOLDER / f"{name}.yaml")
    tree = dict(_tree(tree_of_file.pop("like"))) if "like" in tree_of_file else {}
    for key, value in tree_of_file.items():
        plain = key.removesuffix("+")
        if plain == key:
            tree[key] = value
        elif isinstance(value, list):
            tree[plain] = [*tree.get(plain, []), *value]
        else:
            tree[plain] = {**flat_config(tree.get(plain, {})), **flat_config(value)}
    return tree


def _cell(name: str, tree: Mapping[str, Any]) -> ExperimentCell:
    dataset, _, setting = name.partition(", ")
    about = {key: tree[key] for key in ABOUT_CELL if key in tree}
    keys = {key: value for key, value in tree.items() if key not in ABOUT_CELL}
    by_method = {key: flat_config(value) for key, value in keys.items() if isinstance(value, dict)}
    plain = {key: value for key, value in keys.items() if not isinstance(value, dict)}
    return ExperimentCell(dataset, setting, flat_config(plain), by_method, **about)
