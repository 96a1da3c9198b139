"""Score tables of methods, classes and domains, for reports and the terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pandas as pd

from fedbench.report import typeset
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.table import Column, Table
from fedbench.report.typeset import Cell
from fedbench.results.estimators import SAMPLES, estimator_marks, estimator_remark
from fedbench.results.newcomers import case_name
from fedbench.results.remarks import footnote_numbers
from fedbench.results.schema import COMMON
from fedbench.results.statistics import Interval
from fedbench.results.tables import BEST_TEST, BEST_VAL, LAST, SCORED, SEEDS_ALONE
from fedbench.results.unscored import scored_text, worst_label
from fedbench.tasks import Metric


@dataclass
class ScoreTable:
    """Cells by method, grouped by evaluation point; the first is the method with its remark."""

    id: str
    title: str
    intro: str
    heads: Sequence[str]
    parts: dict[str, dict[str, list[Cell]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


WORST = ("worst tenth", "worst client", "worst 2")
IN_TEXT = (
    *("last round", "clients with a score", "sd", "pooled", "weighted", "common test", *WORST),
    *("best-val round", "best on test*", "over local"),
)
WEIGHTED_NOTE = "weighted: mean over clients, each with the weight of its test samples"
COMMON_NOTE = "common test: a client's model on the test samples of all clients together, mean over clients and seeds"
EXPLAINED = {
    "sd": "sd over seeds",
    "pooled": "pooled over all test samples",
    "weighted": WEIGHTED_NOTE,
    "common test": COMMON_NOTE,
    "best on test*": "* chosen on test: optimistic",
}


def final(study: Study) -> ScoreTable:
    """The final table: the study's own point first, best mean first."""
    heads, lines = _lines(study.table, study.metric)
    spread = ", sd over seeds" if "sd" in heads else ""
    over = over_text(study.table["intervals_over"].tolist())
    intro = f"Test {study.metric.title}: mean over clients and seeds ± half of the 95 % interval {over}{spread}."
    table = ScoreTable("table", "Final table", intro, heads)
    means = study.table[study.table["choice"] == LAST].set_index(["method", "point"])["mean"]
    ordered = sorted(lines, key=lambda place: float(means.get(place, 0.0)), reverse=study.metric.higher)
    for point in dict.fromkeys([study.point, *POINT_NAMES]):
        if own := {method: lines[method, at] for method, at in ordered if at == point}:
            table.parts[POINT_NAMES[point]] = own
    table.notes = [
        f"* Best test {study.metric.label} of any round: chosen on test, so optimistic; shown because some papers "
        "report it.",
        "Pooled: over the test samples of all clients." if "pooled" in table.heads else "",
        f"{typeset.sentence(WEIGHTED_NOTE)}." if "weighted" in table.heads else "",
        f"{typeset.sentence(COMMON_NOTE)}." if "common test" in table.heads else "",
        *(f"{typeset.sentence(clients_note(head))}." for head in table.heads if head.startswith(WORST)),
        f"{typeset.sentence(study.remark)}." if study.remark else "",
        without_validation(study),
    ]
    return table


def final_table_text(
    table: pd.DataFrame, metric: Metric, doubts: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> str:
    """The final table as ASCII text, in its own order; of no scores, why there are none. doubts: of each method."""
    if table.empty:
        return f"no scores: in no round is the mean of test {metric.label} over clients a finite number"
    heads, lines = _lines(table, metric)
    shown = [
        head for begin in IN_TEXT for head in heads if head == begin or (begin in WORST and head.startswith(begin))
    ]
    numbers = footnote_numbers(doubts.values())
    rows = []
    for (method, point), (name, *cells) in lines.items():
        by_head = dict(zip(heads, cells, strict=True))
        label = name.text + "".join(f" [{numbers[doubt]}]" for doubt in doubts.get(method, ()))
        rows.append([Cell(text) for text in (label, point, *(_ascii(by_head[head]) for head in shown))])
    what = f"{metric.label} in %" if metric.share else metric.label
    over = over_text(table["intervals_over"].tolist())
    intervals = f", +- 95 % interval {over}" if any("+-" in cell.text for row in rows for cell in row) else ""
    notes = [
        f"test {what}, mean over clients and seeds{intervals}",
        *(EXPLAINED[head] for head in shown if head in EXPLAINED),
        estimator_remark(metric, table["estimator"].tolist()),
        *(f"[{number}] {doubt}" for doubt, number in numbers.items()),
    ]
    return f"{typeset.plain_table(['method', 'evaluated', *shown], rows, left=2)}\n{'; '.join(filter(None, notes))}"


def over_text(found: Sequence[str]) -> str:
    """What the intervals of a final table cover, from its column: those of other rounds and of clients, seeds alone."""
    if set(found) - {SEEDS_ALONE}:
        return "over seeds and test samples at the last round, over seeds otherwise"
    return "over seeds"


def _ascii(cell: Cell) -> str:
    return f"{cell.text} {cell.small}".strip().replace("±", "+-").replace("\u2212", "-") or "-"


Choices = dict[str, pd.Series]
"""Rows of a method at a point by the choice of the round."""


def _lines(table: pd.DataFrame, metric: Metric) -> tuple[Sequence[str], dict[tuple[str, str], list[Cell]]]:
    """Heads of the columns that show something, and the cells of each method and point, its name first."""
    kinds = dict(zip(table["method"], table["estimator"], strict=True))
    mark = dict(zip(kinds, estimator_marks([*kinds.values()]), strict=True))
    at_last = table[table["choice"] == LAST]
    worst = worst_label([int(n) for name in ("fewest_scored", "most_scored") for n in at_last[name]])
    groups = table.groupby(["method", "point"], sort=False)
    rows = {(str(m), str(p)): {str(row["choice"]): row for _, row in own.iterrows()} for (m, p), own in groups}
    made = Table.of(run_columns(metric, worst), [*rows.values()], least=0)
    return made.heads, {
        (method, point): [Cell(f"{method}{mark[method]}"), *line]
        for (method, point), line in zip(rows, made.lines, strict=True)
    }


def run_columns(metric: Metric, worst: str) -> list[Column[Choices]]:
    """The columns of runs and grids. worst: the head of the column of the worst clients."""

    def score(head: str, name: str, high: str = "", choice: str = LAST, **style: Any) -> Column[Choices]:
        return Column(head, lambda rows: _cell(metric, rows.get(choice), name, high, **style))

    def of_last(head: str, text: Callable[[pd.Series], str]) -> Column[Choices]:
        return Column(head, lambda rows: text(rows[LAST]) if LAST in rows else None)

    return [
        score("last round", "mean", "high", place=1),
        of_last(
            "clients with a score", lambda row: scored_text([int(row[n]) for n in SCORED[1:]], int(row["clients"]))
        ),
        *(score(name, name) for name in ("sd", "pooled", "weighted")),
        score("common test", COMMON),
        score(worst, "worst_tenth", "worst_tenth_high"),
        score("client sd", "spread"),
        score("over local", "gain", "gain_high", is_signed=True),
        of_last("clients that gain", lambda row: _if_known(row["share_gains"])),
        score("best-val round", "mean", "high", BEST_VAL),
        score("best on test*", "mean", choice=BEST_TEST, tone="quiet"),
    ]


def _if_known(share: float) -> str:
    return "" if pd.isna(share) else f"{100 * share:.0f} %"


def _cell(
    metric: Metric, row: pd.Series | None, name: str, high: str = "", is_signed: bool = False, **style: Any
) -> Cell:
    """A number with half of its interval, or with both ends if it is lopsided. high: the column of its upper end."""
    if row is None or pd.isna(row.get(name)):
        return Cell("")
    small, text = "", metric.difference(row[name]) if is_signed else metric.number(row[name])
    if high and pd.notna(row[high]):
        found = Interval(float(row[name]), float(row[high.replace("high", "low")]), float(row[high]), ())
        small = f"± {metric.number(found.half or 0.0)}"
        if found.is_lopsided:
            small = f"({metric.number(found.low or 0.0)} to {metric.number(found.high or 0.0)})"
    return Cell(text, small=small, **style)


def without_validation(study: Study) -> str:
    """Why there is no best-val round if there are no validation images."""
    held, tuned = ((tree.get("data") or {}).get("val") for tree in (study.config, study.plan.config))
    if held != 0:
        return ""
    if tuned and any(entry.role == "candidate" for entry in study.plan.entries):
        return (
            "Final runs train on all training samples, so there is no best-val round; candidates were tried with "
            f"{100 * tuned:g} % of them held out."
        )
    return "No samples are held out for validation, so there is no best-val round."


def of_groups(study: Study) -> list[ScoreTable]:
    """Scores per class and domain, if recorded, best method first.

    With many methods only at the study's point; the file next to the report has the others.
    """
    return [_of_kind(study, str(kind), rows) for kind, rows in study.groups.groupby("by")]


def of_newcomers(study: Study) -> ScoreTable:
    """Scores of the clients that joined after the last round, in the study's order; without parts if there are none."""
    heads, lines = newcomer_cells(study.newcomers, study.metric)
    count = study.newcomers["newcomers"].max() if lines else 0
    intro = (
        f"Test {study.metric.title} of {count:.0f} clients that took no part in training, after local epochs on all "
        "their training samples, or on a few of them: mean over newcomers and seeds ± half of the 95 % interval over "
        "seeds."
    )
    table = ScoreTable("newcomers", "Newcomers", intro, heads, notes=[f"{typeset.sentence(FEW_IMAGES_NOTE)}."])
    if lines:
        table.parts["after the last round"] = {method: [Cell(method), *cells] for method, cells in lines.items()}
    return table


def newcomers_text(table: pd.DataFrame, metric: Metric) -> str:
    """The scores of newcomers as ASCII text; empty without any."""
    heads, lines = newcomer_cells(table, metric)
    if not lines:
        return ""
    rows = [[Cell(text) for text in (method, *map(_ascii, cells))] for method, cells in lines.items()]
    what = f"{metric.label} in %" if metric.share else metric.label
    note = f"newcomers: test {what} after local epochs, mean over newcomers and seeds; {FEW_IMAGES_NOTE}"
    return f"{typeset.plain_table(['newcomers', *heads], rows)}\n{note}"


FEW_IMAGES_NOTE = (
    "with few samples: after the most of these epochs; newcomers with fewer training samples have all of theirs"
)


def newcomer_cells(table: pd.DataFrame, metric: Metric) -> tuple[list[str], dict[str, list[Cell]]]:
    """Heads by epochs, then by images, and the cells of each method. table: `newcomer_table`."""
    places = sorted({(int(i), int(e)) for i, e in zip(table["images"], table["epochs"], strict=True)})
    found = {(row["method"], int(row["images"]), int(row["epochs"])): row for _, row in table.iterrows()}
    lines = {
        method: [_newcomer_cell(metric, found.get((method, *place))) for place in places]
        for method in dict.fromkeys(table["method"])
    }
    return [case_name(epochs, images) for images, epochs in places], lines


def _newcomer_cell(metric: Metric, row: pd.Series | None) -> Cell:
    told = "" if row is None else f"standard deviation over newcomers {metric.number(row['client_sd'])}"
    return _cell(metric, row, "mean", "high", title=told)


def _of_kind(study: Study, kind: str, rows: pd.DataFrame) -> ScoreTable:
    names = list(dict.fromkeys(rows["group"]))
    seen = ", as clients see it" if kind == "class" and study.flipped_clients else ""
    over = f"over all test samples of a {kind}{seen}, and over seeds ± half of the 95 % interval"
    note = (
        ""
        if set(study.estimators.values()) <= {SAMPLES}
        else "These are means over samples, even if other scores are means over batches."
    )
    heads = [f"class {name}" for name in names] if kind == "class" else names
    intro = f"Test {study.metric.title} at the last round, mean {over}."
    table = ScoreTable(f"by-{kind}", f"By {kind}", intro, heads, notes=[note])
    for point in dict.fromkeys([study.point, *(POINT_NAMES if len(study.ordered) == 1 else [])]):
        own = rows[rows["point"] == point]
        lines = {m: _group_line(study.metric, m, names, own[own["method"] == m]) for m in study.ordered}
        if len(own):
            known = {m: line for m, line in lines.items() if any(cell.text for cell in line[1:])}
            table.parts[POINT_NAMES[point]] = known
    return table


def _group_line(metric: Metric, method: str, names: Sequence[str], rows: pd.DataFrame) -> list[Cell]:
    by = {str(row["group"]): row for _, row in rows.iterrows()}
    return [Cell(method), *(_group_cell(metric, by.get(name)) for name in names)]


def _group_cell(metric: Metric, row: pd.Series | None) -> Cell:
    if row is None:
        return Cell("")
    told = f"{row['samples']:.0f} samples of {row['clients']:.0f} clients"
    told += f"; mean over clients {metric.with_unit(row['client_mean'])}"
    return _cell(metric, row, "mean", "high", title=told)


def worst_note(worst: str) -> str:
    """What the column of the worst clients is. worst: its head."""
    own = {"worst tenth": "mean of the worst tenth", "worst client": "score of the worst"}.get(
        worst, "mean of the worst 2"
    )
    return f"{worst}: {own} of a seed's clients"


def clients_note(worst: str) -> str:
    """What tables say of how clients differ. worst: the head of the column of the worst ones."""
    return (
        f"{worst_note(worst)}; client sd: standard deviation over a seed's clients, how unequally a method serves "
        "them; both are means over seeds"
    )
