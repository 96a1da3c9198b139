"""The tables of scores on a page: every method at its points, and single classes and domains."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import sentence
from fedbench.results.estimators import SAMPLES, marks
from fedbench.results.tables import CHOICES, LAST
from fedbench.tasks import Metric


@dataclass(frozen=True)
class Cell:
    """text, and what stands small beside it; style: strong, quiet or none; title: said where it is pointed at."""

    text: str = ""
    small: str = ""
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class Line:
    """A method's cells. label: the method and what its row is marked with."""

    method: str
    label: str
    cells: list[Cell]


@dataclass
class Table:
    """Lines below the name of each evaluation point."""

    id: str
    title: str
    intro: str
    heads: list[str]
    parts: dict[str, list[Line]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


HEADS = (
    "last round",
    "sd",
    "pooled",
    "worst tenth",
    "over local",
    "clients that gain",
    "best-val round",
    "best on test*",
)


def final(study: Study) -> Table:
    """The final table: the study's own point first, the best mean first, without columns that nobody fills."""
    mark = dict(zip(study.estimators, marks([*study.estimators.values()]), strict=True))
    found: dict[str, list[tuple[float, Line]]] = {point: [] for point in dict.fromkeys([study.point, *POINT_NAMES])}
    for (method, point), rows in study.table.groupby(["method", "point"], sort=False):
        by = {str(row["choice"]): row for _, row in rows.iterrows()}
        own = Line(str(method), f"{method}{mark[str(method)]}", _cells(study.metric, by))
        found[str(point)].append((float(by[LAST]["mean"]) if LAST in by else 0.0, own))
    sign = -1 if study.metric.higher else 1
    ordered = {p: [line for _, line in sorted(own, key=lambda pair: sign * pair[0])] for p, own in found.items()}
    lines = [line for own in ordered.values() for line in own]
    kept = [i for i in range(len(HEADS)) if any(line.cells[i].text for line in lines)]
    for line in lines:
        line.cells[:] = [line.cells[i] for i in kept]
    spread = ", sd over seeds" if "sd" in (HEADS[i] for i in kept) else ""
    intro = f"Test {study.metric.title}: mean over clients and seeds ± half of the 95 % interval over seeds{spread}."
    table = Table("table", "Final table", intro, [HEADS[i] for i in kept])
    table.parts = {POINT_NAMES[point]: own for point, own in ordered.items() if own}
    table.notes = [
        f"* Best test {study.metric.label} of any round: chosen on test, so optimistic; printed because some papers "
        "report it.",
        "Pooled: over the test samples of all clients." if "pooled" in table.heads else "",
        f"{sentence(study.remark)}." if study.remark else "",
        without_validation(study),
    ]
    return table


def _cells(metric: Metric, by: dict[str, pd.Series]) -> list[Cell]:
    last, best, test = (by.get(choice) for choice in CHOICES)
    number, half = partial(_number, metric), partial(_half, metric)
    share = "" if last is None or pd.isna(last["share_gains"]) else f"{100 * last['share_gains']:.0f} %"
    return [
        Cell(number(last, "mean"), half(last, "mean", "high"), "strong"),
        Cell(number(last, "sd")),
        Cell(number(last, "pooled")),
        Cell(number(last, "worst_tenth")),
        Cell(number(last, "gain", signed=True), half(last, "gain", "gain_high")),
        Cell(share),
        Cell(number(best, "mean"), half(best, "mean", "high")),
        Cell(number(test, "mean"), style="quiet"),
    ]


def _number(metric: Metric, row: pd.Series | None, name: str, signed: bool = False) -> str:
    if row is None or pd.isna(row[name]):
        return ""
    return metric.difference(row[name]) if signed else metric.number(row[name])


def _half(metric: Metric, row: pd.Series | None, name: str, high: str) -> str:
    return "" if row is None or pd.isna(row[high]) else f"± {metric.number(row[high] - row[name])}"


def without_validation(study: Study) -> str:
    """Why there is no best-val round, where there is none for want of validation images."""
    held, tuned = ((tree.get("data") or {}).get("val") for tree in (study.config, study.plan.config))
    if held != 0:
        return ""
    if tuned and any(entry.role == "candidate" for entry in study.plan.entries):
        return (
            "Final runs train on all training images, so there is no best-val round; points were tried with "
            f"{100 * tuned:g} % of them held out."
        )
    return "No images are held out for validation, so there is no best-val round."


def of_groups(study: Study) -> list[Table]:
    """The scores of single classes and of single domains, where they were recorded, best method first.

    Of many methods at the study's point alone; the file beside the page has the others.
    """
    return [_of_kind(study, str(kind), rows) for kind, rows in study.groups.groupby("by")]


def _of_kind(study: Study, kind: str, rows: pd.DataFrame) -> Table:
    names = list(dict.fromkeys(rows["group"]))
    seen = ", as clients see it" if kind == "class" and study.flipped else ""
    over = f"over all test samples of a {kind}{seen}, and over seeds ± half of the 95 % interval"
    note = (
        ""
        if set(study.estimators.values()) <= {SAMPLES}
        else "Over samples here, also where scores are means over batches."
    )
    heads = [f"class {name}" for name in names] if kind == "class" else names
    intro = f"Test {study.metric.title} at the last round, mean {over}."
    table = Table(f"by-{kind}", f"By {kind}", intro, heads, notes=[note])
    for point in dict.fromkeys([study.point, *(POINT_NAMES if len(study.ordered) == 1 else [])]):
        own = rows[rows["point"] == point]
        lines = [_group_line(study.metric, m, names, own[own["method"] == m]) for m in study.ordered]
        if len(own):
            table.parts[POINT_NAMES[point]] = [line for line in lines if any(cell.text for cell in line.cells)]
    return table


def _group_line(metric: Metric, method: str, names: Sequence[str], rows: pd.DataFrame) -> Line:
    by = {str(row["group"]): row for _, row in rows.iterrows()}
    return Line(method, method, [_group_cell(metric, by.get(name)) for name in names])


def _group_cell(metric: Metric, row: pd.Series | None) -> Cell:
    if row is None:
        return Cell()
    told = f"{row['samples']:.0f} samples of {row['clients']:.0f} clients"
    told += f"; mean over clients {metric.shown(row['client_mean'])}"
    return Cell(_number(metric, row, "mean"), _half(metric, row, "mean", "high"), title=told)
