"""Score tables of methods, classes and domains, for reports and the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pandas as pd

from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.table import Column, Table
from fedbench.report.typeset import Cell, sentence
from fedbench.results.estimators import SAMPLES, estimator_marks, estimator_remark
from fedbench.results.newcomers import case_name
from fedbench.results.remarks import footnote_numbers
from fedbench.results.schema import COMMON
from fedbench.results.statistics import Interval
from fedbench.results.tables import BEST_TEST, BEST_VAL, LAST, SCORED, SEEDS_ALONE
from fedbench.results.unscored import scored_text, worst_label
from fedbench.tasks import Metric

PAGES_ONLY = ("client sd", "clients that gain")
"""Columns that the terminal leaves out."""
OVER_LOCAL = ("over local", "clients that gain")
"""Columns that compare with local training."""
WEIGHTED_NOTE = "weighted: mean over clients, each with the weight of its test samples"
COMMON_NOTE = "common test: a client's model on the test samples of all clients together, mean over clients and seeds"
FEW_IMAGES_NOTE = (
    "with few samples: after the most of these epochs; newcomers with fewer training samples have all of theirs"
)


@dataclass(frozen=True)
class ScoreRow:
    """A method at an evaluation point.

    name: with the remark on its estimator; rows: its numbers by choice of the round, or by class or domain.
    """

    method: str
    point: str
    name: str
    rows: dict[str, pd.Series]


METHOD = Column[ScoreRow]("method", lambda row: Cell(row.name, method=row.method))


def final_rows(table: pd.DataFrame) -> list[ScoreRow]:
    """The rows of a final table, in its order."""
    kinds = dict(zip(table["method"], table["estimator"], strict=True))
    marks = dict(zip(kinds, estimator_marks([*kinds.values()]), strict=True))
    rows: dict[tuple[str, str], ScoreRow] = {}
    for _, row in table.iterrows():
        method, point = row["method"], row["point"]
        known = rows.setdefault((method, point), ScoreRow(method, point, f"{method}{marks[method]}", {}))
        known.rows[row["choice"]] = row
    return [*rows.values()]


def worst_of(table: pd.DataFrame) -> str:
    """The head of the column of the worst clients."""
    at_last = table[table["choice"] == LAST]
    return worst_label([int(n) for name in ("fewest_scored", "most_scored") for n in at_last[name]])


def final(study: Study) -> Table:
    """The final table: the study's own point first, best mean first."""
    metric, worst = study.metric, worst_of(study.table)
    rows = sorted(final_rows(study.table), key=_last_mean, reverse=metric.higher)
    rows = [row for point in dict.fromkeys([study.point, *POINT_NAMES]) for row in rows if row.point == point]
    columns = [METHOD, *run_columns(metric, worst)]
    if study.sequential_test is not None:  # whose intervals hold at all looks
        columns = [column for column in columns if column.title not in OVER_LOCAL]
    table = Table.of(columns, rows, least=1, title="Final table", groups=[POINT_NAMES[row.point] for row in rows])
    spread = ", sd over seeds" if "sd" in table.heads else ""
    over = over_text(study.table["intervals_over"].tolist())
    intro = f"Test {metric.title}: mean over clients and seeds ± half of the 95 % interval {over}{spread}."
    notes = [
        f"* Best test {metric.label} of any round: chosen on test, so optimistic; shown because some papers report it.",
        "Pooled: over the test samples of all clients." if "pooled" in table.heads else "",
        f"{sentence(WEIGHTED_NOTE)}." if "weighted" in table.heads else "",
        f"{sentence(COMMON_NOTE)}." if "common test" in table.heads else "",
        f"{sentence(clients_note(worst))}." if worst in table.heads else "",
        f"{sentence(study.remark)}." if study.remark else "",
        without_validation(study),
    ]
    return replace(table, intro=intro, notes=[note for note in notes if note])


def _last_mean(row: ScoreRow) -> float:
    return float(row.rows[LAST]["mean"]) if LAST in row.rows else 0.0


def final_table_text(
    table: pd.DataFrame, metric: Metric, doubts: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> str:
    """The final table as ASCII text, in its own order; of no scores, why there are none. doubts: of each method."""
    if table.empty:
        return f"no scores: in no round is the mean of test {metric.label} over clients a finite number"
    numbers = footnote_numbers(doubts.values())

    def name(row: ScoreRow) -> str:
        return row.name + "".join(f" [{numbers[doubt]}]" for doubt in doubts.get(row.method, ()))

    columns = [column for column in run_columns(metric, worst_of(table)) if column.title not in PAGES_ONLY]
    columns.sort(key=lambda column: column.title == "over local")  # which comes last
    shown = _in_ascii(
        Table.of(
            [Column("method", name), Column("evaluated", lambda row: row.point), *columns], final_rows(table), left=2
        )
    )
    what = f"{metric.label} in %" if metric.share else metric.label
    over = over_text(table["intervals_over"].tolist())
    intervals = f", +- 95 % interval {over}" if any("+-" in cell.text for line in shown.lines for cell in line) else ""
    notes = [
        f"test {what}, mean over clients and seeds{intervals}",
        *shown.notes,
        estimator_remark(metric, table["estimator"].tolist()),
        *(f"[{number}] {doubt}" for doubt, number in numbers.items()),
    ]
    return f"{shown.plain()}\n{'; '.join(filter(None, notes))}"


def over_text(kinds: Sequence[str]) -> str:
    """The chance that the intervals of a final table cover, from its column; those of other rounds are over seeds."""
    if set(kinds) - {SEEDS_ALONE}:
        return "over seeds and test samples at the last round, over seeds otherwise"
    return "over seeds"


def _in_ascii(table: Table) -> Table:
    def text(cell: Cell) -> str:
        return f"{cell.text} {cell.small}".strip().replace("±", "+-").replace("\u2212", "-") or "-"

    words = table.left
    return replace(table, lines=[[*line[:words], *(Cell(text(cell)) for cell in line[words:])] for line in table.lines])


def run_columns(metric: Metric, worst: str) -> list[Column[ScoreRow]]:
    """The columns of runs and grids. worst: the head of the column of the worst clients."""

    def score(
        head: str, name: str, high: str = "", choice: str = LAST, note: str = "", **style: Any
    ) -> Column[ScoreRow]:
        return Column(head, lambda row: _cell(metric, row.rows.get(choice), name, high, **style), note=note)

    def scored(row: ScoreRow) -> str | None:
        last = row.rows.get(LAST)
        return None if last is None else scored_text([int(last[n]) for n in SCORED[1:]], int(last["clients"]))

    def share_that_gains(row: ScoreRow) -> str | None:
        last = row.rows.get(LAST)
        return None if last is None or pd.isna(last["share_gains"]) else f"{100 * last['share_gains']:.0f} %"

    return [
        score("last round", "mean", "high", place=1),
        Column("clients with a score", scored),
        score("sd", "sd", note="sd over seeds"),
        score("pooled", "pooled", note="pooled over all test samples"),
        score("weighted", "weighted", note=WEIGHTED_NOTE),
        score("common test", COMMON, note=COMMON_NOTE),
        score(worst, "worst_tenth", "worst_tenth_high"),
        score("client sd", "spread"),
        score("over local", "gain", "gain_high", is_signed=True),
        Column("clients that gain", share_that_gains),
        score("best-val round", "mean", "high", BEST_VAL),
        score("best on test*", "mean", choice=BEST_TEST, note="* chosen on test: optimistic", tone="quiet"),
    ]


def _cell(
    metric: Metric, row: pd.Series | None, name: str, high: str = "", is_signed: bool = False, **style: Any
) -> Cell:
    """A number with half of its interval, or with both ends if it is lopsided. high: the column of its upper end."""
    if row is None or pd.isna(row.get(name)):
        return Cell("")
    small, text = "", metric.difference(row[name]) if is_signed else metric.number(row[name])
    if high and pd.notna(row[high]):
        ends = Interval(float(row[name]), float(row[high.replace("high", "low")]), float(row[high]), ())
        small = f"± {metric.number(ends.half or 0.0)}"
        if ends.is_lopsided:
            small = f"({metric.number(ends.low or 0.0)} to {metric.number(ends.high or 0.0)})"
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


def of_groups(study: Study) -> list[Table]:
    """Scores per class and domain, if recorded, best method first.

    With many methods only at the study's point; the file next to the report has the others.
    """
    return [_of_kind(study, str(kind), rows) for kind, rows in study.groups.groupby("by")]


def _of_kind(study: Study, kind: str, rows: pd.DataFrame) -> Table:
    seen = ", as clients see it" if kind == "class" and study.flipped_clients else ""
    of_all = "over all test samples" if study.metric.over_samples else "over clients, weighted by their test samples,"
    over = f"{of_all} of a {kind}{seen}, and over seeds ± half of the 95 % interval"
    alike = set(study.estimators.values()) <= {SAMPLES}
    names = dict(zip(rows["group"], rows["name"], strict=True))
    columns = [
        Column[ScoreRow](f"class {name}" if kind == "class" else name, partial(_group_cell, study.metric, group))
        for group, name in names.items()
    ]
    points = dict.fromkeys([study.point, *(POINT_NAMES if len(study.ordered) == 1 else [])])
    places = {(method, point): ScoreRow(method, point, method, {}) for point in points for method in study.ordered}
    for _, row in rows.iterrows():
        if (key := (row["method"], row["point"])) in places:
            places[key].rows[row["group"]] = row
    shown = [row for row in places.values() if any(column.cell(row).text for column in columns)]
    return Table.of(
        [METHOD, *columns],
        shown,
        least=1 + len(columns),
        title=f"By {kind}",
        name=f"by-{kind}",
        intro=f"Test {study.metric.title} at the last round, mean {over}.",
        groups=[POINT_NAMES[row.point] for row in shown],
        notes=[] if alike else ["These are means over samples, even if other scores are means over batches."],
    )


def of_newcomers(study: Study) -> Table:
    """Scores of the clients that joined after the last round, in the study's order; without lines if there are none."""
    table = newcomer_lines(study.newcomers, study.metric)
    count = study.newcomers["newcomers"].max() if table.lines else 0
    intro = (
        f"Test {study.metric.title} of {count:.0f} clients that took no part in training, after local epochs on all "
        "their training samples, or on a few of them: mean over newcomers and seeds ± half of the 95 % interval over "
        "seeds."
    )
    groups, notes = ["after the last round"] * len(table.lines), [f"{sentence(FEW_IMAGES_NOTE)}."]
    return replace(table, heads=["method", *table.heads[1:]], intro=intro, groups=groups, notes=notes)


def newcomers_text(table: pd.DataFrame, metric: Metric) -> str:
    """The scores of newcomers as ASCII text; empty without any."""
    shown = _in_ascii(newcomer_lines(table, metric))
    if not shown.lines:
        return ""
    what = f"{metric.label} in %" if metric.share else metric.label
    note = f"newcomers: test {what} after local epochs, mean over newcomers and seeds; {FEW_IMAGES_NOTE}"
    return f"{shown.plain()}\n{note}"


def newcomer_lines(table: pd.DataFrame, metric: Metric) -> Table:
    """A line per method; columns by epochs, then by images. table: `newcomer_table`."""
    rows = {(row["method"], int(row["images"]), int(row["epochs"])): row for _, row in table.iterrows()}

    def cell(images: int, epochs: int, method: str) -> Cell:
        return _newcomer_cell(metric, rows.get((method, images, epochs)))

    cases = sorted({(images, epochs) for _, images, epochs in rows})
    columns = [Column[str](case_name(epochs, images), partial(cell, images, epochs)) for images, epochs in cases]
    methods = Column[str]("newcomers", lambda method: Cell(method, method=method))
    return Table.of([methods, *columns], [*dict.fromkeys(table["method"])], title="Newcomers", name="newcomers")


def _newcomer_cell(metric: Metric, row: pd.Series | None) -> Cell:
    title = "" if row is None else f"standard deviation over newcomers {metric.number(row['client_sd'])}"
    return _cell(metric, row, "mean", "high", title=title)


def _group_cell(metric: Metric, group: str, scores: ScoreRow) -> Cell:
    row = scores.rows.get(group)
    if row is None:
        return Cell("")
    title = f"{row['samples']:.0f} samples of {row['clients']:.0f} clients"
    title += f"; mean over clients {metric.with_unit(row['client_mean'])}"
    return _cell(metric, row, "mean", "high", title=title)


def worst_note(worst: str) -> str:
    """Explains the column of the worst clients. worst: its head."""
    words = {"worst tenth": "mean of the worst tenth", "worst client": "score of the worst"}
    return f"{worst}: {words.get(worst, 'mean of the worst 2')} of a seed's clients"


def clients_note(worst: str) -> str:
    """Explains the columns on how clients differ. worst: the head of the column of the worst ones."""
    return (
        f"{worst_note(worst)}; client sd: standard deviation over a seed's clients, how unequally a method serves "
        "them; both are means over seeds"
    )
