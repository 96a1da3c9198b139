"""The tables of a leaderboard: scores with verdicts, and costs, on pages, in a terminal and as files.

To show a further metric, add a column to `score_columns`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from fedbench.report.evidence import SEEDS, kind_of
from fedbench.report.leaderboard import OTHER_POINT, LeaderboardRow
from fedbench.report.scores import COMMON_NOTE, WEIGHTED_NOTE, clients_note
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.table import Column, Table, numbers_of
from fedbench.report.typeset import Cell, p_text, sentence, share_text, with_half
from fedbench.report.verdicts import bound_text
from fedbench.results.contrasts import Contrast
from fedbench.results.estimators import estimator_marks, estimator_remark
from fedbench.results.remarks import footnote_numbers
from fedbench.results.schema import COMMON
from fedbench.results.statistics import Interval, ends_of, interval
from fedbench.results.tables import pooled_scores, weighted_scores
from fedbench.results.unscored import scored_text, worst_label
from fedbench.results.verdict import Verdict
from fedbench.tasks import Metric

NEWCOMERS_NOTE = "newcomers: clients that joined after the last round, after their most local epochs"
SPENT = (
    "candidates of tuning; parameters of a client's model, and those that clients share; steps (the pooled model's "
    "own) and MB per client, both ways, and seconds of a whole run by the clock, which depend on what else the machine "
    "does, and of all processors; rounds and MB per client until the mean curve first reaches local's last score"
)
HEADS = ("over local", "p (adjusted)", "better off")
LeaderboardColumn = Column[LeaderboardRow]


def score_columns(study: Study, worst: str) -> list[LeaderboardColumn]:
    """The columns of scores and verdicts. worst: the head of the column of the worst clients."""
    metric, other = study.metric, OTHER_POINT[study.point]
    plain = partial(LeaderboardColumn, form=metric.number)
    with_ends = partial(LeaderboardColumn, form=partial(score_text, study), numbers=ends_of)
    scored = lambda row: scored_text(row.scored, int(row.last["clients"].max())) or None  # noqa: E731
    pooled = lambda row: _mean(pooled_scores(metric, row.clients, row.last))  # noqa: E731
    weighted = lambda row: _mean(weighted_scores(metric, row.clients))  # noqa: E731
    common = lambda row: row.recorded(f"{COMMON}_{metric.name}")  # noqa: E731
    return [
        LeaderboardColumn("clients with a score", scored),
        LeaderboardColumn("", lambda row: row.score, name="score", numbers=lambda _, score: score.columns()),
        plain("sd", lambda row: row.score.sd),
        plain("pooled", pooled, name="pooled"),
        plain("weighted", weighted, name="weighted", note=WEIGHTED_NOTE, is_optional=True),
        plain("", scored, name="scored_clients", is_optional=True),
        plain(other.replace("_", " "), lambda row: row.other and row.other.mean, name=other),
        with_ends(worst, lambda row: row.worst, name="worst_tenth"),
        plain("client sd", lambda row: row.spread, name="spread"),
        with_ends("newcomers", lambda row: row.newcomers, name="newcomers", note=NEWCOMERS_NOTE, is_optional=True),
        with_ends("common test", common, name="common", note=COMMON_NOTE, is_optional=True),
        plain("", lambda row: row.rank, name="rank"),
        *verdict_columns(metric, HEADS if study.sequential_test is None else 3 * [""]),
        *([] if study.sequential_test is None else sequential_columns(metric)),
    ]


def score_text(study: Study, score: Interval) -> str:
    """A mean with half of its interval; of a sequential test the mean alone.

    It stops by what it sees, so that intervals for a fixed number of seeds do not hold.
    """
    return with_half(score, study.metric.number) if study.sequential_test is None else study.metric.number(score.mean)


def _mean(values: Sequence[float] | None) -> float | None:
    return interval(values).mean if values else None


def verdict_columns(metric: Metric, heads: Sequence[str] = HEADS) -> list[LeaderboardColumn]:
    """The verdicts of tests for a fixed number of seeds; files have their columns even if they have no heads."""

    def difference(verdict: Verdict) -> str:
        return with_half(verdict.interval, metric.difference, metric.number) if isinstance(verdict, Contrast) else ""

    def of_test(part: str, row: LeaderboardRow) -> Any:
        return getattr(row.over_local, part, None)

    return [
        Column(heads[0], lambda row: row.over_local, difference, "over_local", numbers=_numbers),
        Column(heads[1], partial(of_test, "p_adjusted"), lambda p: p_text(p).removeprefix("= ")),
        Column(heads[2], partial(of_test, "better_off"), share_text, "better_off", numbers=ends_of),
        Column("", lambda row: row.behind, name="best_ahead", numbers=_numbers),
        Column("", lambda row: row.tied, name="tied_with_best"),
    ]


def _numbers(name: str, verdict: Verdict | None) -> dict[str, float | None]:
    """The intervals, p, and detectable size of a difference."""
    low, high = getattr(verdict, "resampled", None) or (None, None)
    return {
        **ends_of(name, verdict and verdict.interval),
        f"{name}_resampled_low": low,
        f"{name}_resampled_high": high,
        **{f"{name}_{part}": getattr(verdict, part, None) for part in ("p_adjusted", "resolves", "seeds_needed")},
    }


def sequential_columns(metric: Metric) -> list[LeaderboardColumn]:
    """The verdicts of a sequential test, with their simultaneous intervals."""

    def words(title: str, part: str) -> LeaderboardColumn:
        return Column(title, lambda row: getattr(row.standing, part), name=f"sequential_{part}")

    with_ends = partial(LeaderboardColumn, form=partial(bound_text, metric), numbers=ends_of)
    return [
        Column(
            "seeds", lambda row: row.standing and row.standing.seeds, lambda seeds: str(seeds or ""), "sequential_seeds"
        ),
        with_ends("over local", lambda row: row.over_local and row.over_local.interval, name="sequential_over_local"),
        words("against local", "against_local"),
        with_ends("from the best", lambda row: row.from_best, name="sequential_from_best"),
        words("who is best", "who_is_best"),
    ]


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.3g}"


def model_sizes(environment: Mapping[str, Any], part: str) -> str:
    """The numbers of parameters, or of those that clients share, of each model of the clients; "" if not recorded."""
    return ", ".join(str(model[part]) for model in environment.get("models", {}).values())


def _sizes(part: str, row: LeaderboardRow) -> str:
    return model_sizes(row.study.runs[row.label].environment(), part)


_three, _whole = "{:.3g}".format, "{:.0f}".format
COSTS: list[LeaderboardColumn] = [
    Column("candidates", lambda row: row.study.plan.budget(row.label), name="tuned_points"),
    Column("", lambda row: row.chosen, name="chosen"),
    Column("parameters", partial(_sizes, "parameters"), name="parameters"),
    Column("shared", partial(_sizes, "shared"), name="shared_parameters"),
    Column("steps", lambda row: row.spent("steps"), _whole, "steps"),
    Column("MB", lambda row: row.spent("bytes_up", "bytes_down"), _megabytes, "bytes"),
    Column("seconds", lambda row: row.spent("seconds_per_round"), _three, "seconds"),
    Column("CPU seconds", lambda row: row.spent("cpu_seconds_per_round"), _three, "cpu_seconds"),
    Column("rounds to local", lambda row: row.reached[0], name="local_reached_in_round"),
    Column("MB to local", lambda row: row.reached[1], _megabytes, "local_reached_after_bytes"),
]


def leaderboard_frame(study: Study, rows: Sequence[LeaderboardRow]) -> pd.DataFrame:
    """Numbers in columns; shares and scores as in records, unknown values empty. Failed methods come last."""
    columns = [*score_columns(study, ""), *COSTS]
    return pd.DataFrame(
        [
            {
                "method": row.label,
                "status": "done",
                "point": study.point,
                "estimator": study.estimators[row.label],
                "seeds": row.score.seeds,
                "failed_seeds": row.failed,
                "error": study.reason(row.label) or None if row.failed else None,
                **numbers_of(columns, row),
            }
            for row in rows
        ]
        + [{"method": label, "status": "failed", "seeds": 0, "error": why} for label, why in study.failures.items()]
    )


def _name(row: LeaderboardRow, remarks: str = "") -> Cell:
    return Cell(row.label + remarks, title=row.chosen, method=row.label)


def score_table(study: Study, rows: Sequence[LeaderboardRow]) -> Table:
    """The scores with their legend; failed methods come last."""
    worst = worst_label([count for row in rows for count in row.scored])
    kinds = [study.estimators[row.label] for row in rows]
    marks = dict(zip((row.label for row in rows), estimator_marks(kinds), strict=True))
    feet = footnote_numbers(row.remarks for row in rows)
    places = {row.label: rank for rank, row in enumerate(rows[:2], 1)}

    def name(row: LeaderboardRow) -> Cell:
        return _name(row, row.mark + marks[row.label] + "".join(f" [{feet[line]}]" for line in row.remarks))

    def score(row: LeaderboardRow) -> Cell:
        return Cell(score_text(study, row.score), places.get(row.label, 0), row.tied, row.tone)

    note = (
        leaderboard_note(kind_of([row.score for row in rows]), worst)
        if study.sequential_test is None
        else sequential_note(worst)
    )
    columns = [Column("method", name), Column("score", score), *score_columns(study, worst)]
    table = Table.of(columns, rows, notes=[note], title="Leaderboard")
    empty = [Cell("")] * (len(table.heads) - 2)
    lines = [[Cell(label, method=label), Cell("failed", title=why), *empty] for label, why in study.failures.items()]
    remarks = [f"[{number}] {line}" for line, number in feet.items()]
    notes = [*table.notes, estimator_remark(study.metric, kinds), *remarks]
    return replace(table, lines=[*table.lines, *lines], notes=[note for note in notes if note])


def cost_table(rows: Sequence[LeaderboardRow]) -> Table:
    """The costs, without empty columns."""
    return Table.of([Column("method", _name), *COSTS], rows, title="Cost of each method", intro=f"{sentence(SPENT)}.")


def reasons(failures: Mapping[str, str]) -> list[str]:
    """Why each method without a score has none."""
    return [f"{label} failed: {why}" for label, why in failures.items()]


def point_suffix(study: Study, rows: Sequence[LeaderboardRow]) -> str:
    """The evaluation point of the scores."""
    return f" {POINT_NAMES[study.point]}" if rows else ""


def leaderboard_text(study: Study, rows: Sequence[LeaderboardRow]) -> str:
    """Aligned plain text; `=` marks methods that cannot be told from the best."""
    what = f"{study.metric.label} in %" if study.metric.share else study.metric.label
    scores = score_table(study, rows)
    legend = "; ".join(scores.notes)
    return f"{scores.plain()}\ntest {what}{point_suffix(study, rows)}; {legend}\n\n{cost_table(rows).plain()}\n{SPENT}"


def leaderboard_note(over: str, worst: str) -> str:
    """Explains the numbers of a table.

    over: what the intervals of scores and differences cover. worst: the head of the column of the worst clients.
    """
    return (
        f"± half of the 95 % interval {over}{'' if over == SEEDS else f' ({worst}: over seeds)'}, sd over seeds; "
        f"pooled over all test samples; {clients_note(worst)}; better off with its 95 % interval, if seeds differ; "
        "p adjusted for the number of comparisons, = cannot be told from the best by it"
    )


def sequential_note(worst: str) -> str:
    """Explains the numbers of a table in a study that adds seeds until it is decided."""
    return (
        f"sd over seeds; {clients_note(worst)}; "
        "methods have different numbers of seeds and are ordered by their paired difference from the first; "
        "differences are those of the seeds that decided them, later seeds change the scores only; "
        "in brackets simultaneous intervals; = may be the best"
    )
