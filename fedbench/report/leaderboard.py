"""The table of a comparison: scores, comparisons with local and the best, and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from fedbench.report import typeset
from fedbench.report.doubts import with_doubt
from fedbench.report.evidence import SEEDS, kind_of
from fedbench.report.scores import COMMON_NOTE, WEIGHTED_NOTE, clients_note
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import Cell, Number, p_text, sentence, share_text, with_half
from fedbench.report.verdicts import RACE_HEADS, RaceStanding, bound_text, race_verdicts, tone_of
from fedbench.results.contrasts import Contrast, block_ranks, family, stricter
from fedbench.results.estimators import estimator_marks, estimator_remark
from fedbench.results.files import write_atomically
from fedbench.results.newcomers import after_most_epochs
from fedbench.results.plan import point_name
from fedbench.results.race import Race
from fedbench.results.remarks import beside_row, footnote_numbers
from fedbench.results.schema import COMMON
from fedbench.results.statistics import Interval, ends_of, interval
from fedbench.results.tables import BASELINE, LAST, REFERENCES, known_interval, pooled_scores, weighted_scores
from fedbench.results.unscored import scored_counts, scored_text, worst_label
from fedbench.results.verdict import Bound, Verdict
from fedbench.tasks import Metric


@dataclass(frozen=True)
class LeaderboardRow:
    """A method. score, other: test scores at the last round, at the study's point and at the other point.

    failed, why: number of seeds without a score because their run failed or diverged, and the first reason.
    estimator: what a client's score is averaged over. pooled: the score over all test samples, if counted. worst,
    spread: mean of the worst tenth of clients, and standard deviation over clients, each of a seed and over seeds.
    over_local, behind: it against local training and the best against it; None for these two themselves. points,
    chosen: the number of tuned points and the best one. parameters, shared: `model_sizes`. steps, traffic (bytes, both
    ways), seconds of the clock and of all processors: of the whole run, per client except for seconds and the steps
    of a pooled model. newcomers: the score of clients that joined after the last round, after their most local
    epochs. common: the score of the clients' models on the test samples of all clients. target_round, target_bytes:
    when the mean curve first reaches local's last score, if ever. race: what a sequential test says of it in
    words. tone: the colour of its score (`verdicts.TONES`). remarks: those of its runs that concern its numbers.
    weighted: the mean weighted by test samples, if it differs from the pooled score. scored: how many of the evaluated
    clients have a score, by seed.
    """

    label: str
    point: str
    failed: int
    why: str
    estimator: str
    score: Interval
    pooled: float | None
    other: Interval | None
    worst: Interval | None
    spread: float | None
    rank: float | None
    over_local: Verdict | None
    behind: Verdict | None
    points: int
    chosen: str
    parameters: str
    shared: str
    steps: float | None
    traffic: float | None
    seconds: float | None
    cpu_seconds: float | None
    target_round: int | None
    target_bytes: float | None
    tone: str
    race: RaceStanding | None = None
    newcomers: Interval | None = None
    common: Interval | None = None
    weighted: float | None = None
    scored: Sequence[int] = ()
    clients: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def tied(self) -> bool:
        """Whether it cannot be told from the best."""
        if self.race is not None:
            return self.race.may_be_best
        return self.behind is not None and not self.behind.sign

    @property
    def mark(self) -> str:
        """The remark after a score that lacks seeds."""
        count = len(self.score.values)
        return f" ({count} of {count + self.failed} seeds)" if self.failed else ""

    @property
    def from_best(self) -> Bound | None:
        """The difference from the best in a sequential test."""
        found = None if self.behind is None else self.behind.interval
        return -found if isinstance(found, Bound) else None

    def shown(self, found: Interval | None, number: Number, half: Number | None = None) -> str:
        """A mean with half of its interval, if known; of a race the mean alone.

        A race stops by what it sees, so that intervals for a fixed number of seeds do not hold.
        """
        if found is None or self.race is None:
            return "" if found is None else with_half(found, number, half)
        return number(found.mean)


def leaderboard(study: Study, margin: float | None = None) -> list[LeaderboardRow]:
    """The methods in the study's order: best mean first, references last.

    margin: a difference too small to matter, in units of the metric; differences surely below it are called equal.
    """
    labels = study.ordered
    if not labels:
        return []
    if study.race is not None:
        labels = race_order(study, study.race)
    local, behind = comparisons(study, labels, margin)
    order = block_ranks(study.scores, [label for label in labels if label not in REFERENCES], study.point)
    target = study.final_score(BASELINE) if BASELINE in labels else None
    return [_row(study, label, local.get(label), behind.get(label), order.get(label), target) for label in labels]


def comparisons(
    study: Study, labels: Sequence[str], margin: float | None = None
) -> tuple[Mapping[str, Verdict], Mapping[str, Verdict]]:
    """Every method against local training, and the best against every other competing method, by label.

    Without a sequential test these are two families. A pair in both gets the stricter correction, so that a report
    states one value.
    """
    if study.race is not None:
        found = {label: race_verdicts(study, study.race, label) for label in labels}
        over_local = {label: verdict for label, (verdict, _, _) in found.items() if verdict is not None}
        return over_local, {label: verdict for label, (_, verdict, _) in found.items() if verdict is not None}
    best = labels[0]
    compared = partial(family, study.scores, point=study.point, margin=margin)
    others = [label for label in labels if label != BASELINE] if BASELINE in labels else []
    local = {c.method: c for c in compared([(label, BASELINE) for label in others])}
    behind = {c.against: c for c in compared([(best, label) for label in labels[1:] if label not in REFERENCES])}
    for label in [label for label in behind if BASELINE in (best, label)]:
        own = label if best == BASELINE else best
        local[own], behind[label] = stricter(local[own], behind[label]), stricter(behind[label], local[own])
    doubted = [{label: with_doubt(study, c) for label, c in family.items()} for family in (local, behind)]
    return doubted[0], doubted[1]


def _row(
    study: Study,
    label: str,
    over_local: Verdict | None,
    behind: Verdict | None,
    rank: float | None,
    target: float | None,
) -> LeaderboardRow:
    last, other, cost = study.last_rows(label), study.last_rows(label, OTHER_POINT[study.point]), study.summaries[label]
    own = study.scores.clients[label, study.point, LAST]
    over_all, weighted = pooled_scores(study.metric, own, last), weighted_scores(study.metric, own)
    rounds = study.runs[label].config().get("rounds") or 0
    whole = lambda name: None if cost.get(name) is None else cost[name] * rounds  # noqa: E731
    round, sent = (None if target is None else first_reaching(study, label, target)) or (None, None)
    up, down = whole("bytes_up"), whole("bytes_down")
    return LeaderboardRow(
        label,
        study.point,
        len(failed := study.failed_seeds(label)),
        study.reason(label) if failed else "",
        study.estimators[label],
        study.scores.score(label, study.point),
        interval(over_all).mean if over_all else None,
        study.scores.score(label, OTHER_POINT[study.point]) if len(other) else None,
        known_interval(last, "test_worst_tenth", study.metric),
        None if last["test_spread"].isna().all() else float(last["test_spread"].mean()),
        rank,
        over_local,
        behind,
        study.plan.budget(label),
        point_name(study.plan.choices.get(label, {})),
        *model_sizes(study.runs[label].environment()),
        whole("steps"),
        None if up is None else up + (down or 0),
        whole("seconds_per_round"),
        whole("cpu_seconds_per_round"),
        round,
        sent,
        tone_of(label, over_local) if BASELINE in study.metrics or label in REFERENCES else "",
        race=None if study.race is None else race_verdicts(study, study.race, label)[2],
        newcomers=after_most_epochs(study.metric, study.runs[label].newcomers()),
        weighted=interval(weighted).mean if weighted else None,
        scored=scored_counts(last, study.metric),
        clients=int(last["clients"].max()),
        common=known_interval(last, f"{COMMON}_{study.metric.name}", study.metric),
        remarks=beside_row(cost["doubts"]),
    )


def model_sizes(environment: Mapping[str, Any]) -> tuple[str, str]:
    """The numbers of parameters of a client's model, and of those that it shares, each model's where there are several.

    Empty if they were not recorded.
    """
    models = environment.get("models", {}).values()
    whole, shared = (", ".join(str(model[part]) for model in models) for part in ("parameters", "shared"))
    return whole, shared


def race_order(study: Study, race: Race) -> list[str]:
    """Methods by their paired difference from the leader over the seeds that both have, references last."""
    labels = [label for label in study.ordered if label not in REFERENCES]
    leader = race.leader if race.leader in labels else None
    if leader is None or not race.look:
        return study.ordered

    def behind(label: str) -> float:
        paired = study.scores.paired_clients(label, leader, study.point, LAST)
        return float(paired.groupby("seed")["difference"].mean().mean()) if len(paired) else -inf

    candidates = [label for label in race.candidates if label in labels]
    others = sorted((label for label in labels if label not in candidates), key=lambda label: -behind(label))
    return [*candidates, *others, *(label for label in study.ordered if label in REFERENCES)]


def first_reaching(study: Study, label: str, target: float) -> tuple[int, float | None] | None:
    """The first round whose mean over seeds reaches the target, and the bytes per participant so far."""
    curve = study.curves[label, study.point]
    shown = curve["mean"] / study.metric.factor
    good = curve[shown >= target] if study.metric.higher else curve[shown <= target]
    if good.empty:
        return None
    number = int(good["round"].iloc[0])
    sent = study.costs[label].set_index("round")["sent"]
    return number, float(sent[number]) if number in sent.index else None


def leaderboard_frame(
    rows: Sequence[LeaderboardRow], failures: Mapping[str, str] = MappingProxyType({})
) -> pd.DataFrame:
    """Numbers in columns; shares and scores as in records, unknown values empty. Failed methods come last."""
    return pd.DataFrame(
        [
            {
                "method": row.label,
                "status": "done",
                "point": row.point,
                "estimator": row.estimator,
                "seeds": len(row.score.values),
                "failed_seeds": row.failed,
                "error": row.why or None,
                **row.score.columns(),
                "pooled": row.pooled,
                **({} if row.weighted is None else {"weighted": row.weighted}),
                **({"scored_clients": scored} if (scored := scored_text(row.scored, row.clients)) else {}),
                OTHER_POINT[row.point]: None if row.other is None else row.other.mean,
                **ends_of("worst_tenth", row.worst),
                "spread": row.spread,
                **({} if row.newcomers is None else ends_of("newcomers", row.newcomers)),
                **({} if row.common is None else ends_of("common", row.common)),
                "rank": row.rank,
                **_numbers("over_local", row.over_local),
                **ends_of("better_off", getattr(row.over_local, "better_off", None)),
                **_numbers("best_ahead", row.behind),
                "tied_with_best": row.tied,
                **race_columns(row),
                "tuned_points": row.points,
                "chosen": row.chosen,
                "parameters": row.parameters,
                "shared_parameters": row.shared,
                "steps": row.steps,
                "bytes": row.traffic,
                "seconds": row.seconds,
                "cpu_seconds": row.cpu_seconds,
                "local_reached_in_round": row.target_round,
                "local_reached_after_bytes": row.target_bytes,
            }
            for row in rows
        ]
        + [{"method": label, "status": "failed", "seeds": 0, "error": why} for label, why in failures.items()]
    )


def race_columns(row: LeaderboardRow) -> dict[str, Any]:
    """The verdicts of a sequential test as in table.csv; empty without one."""
    if row.race is None:
        return {}
    return {
        "race_seeds": row.race.seeds,
        **ends_of("race_over_local", row.over_local and row.over_local.interval),
        "race_against_local": row.race.against_local,
        **ends_of("race_from_best", row.from_best),
        "race_who_is_best": row.race.who_is_best,
    }


def race_cells(row: LeaderboardRow, metric: Metric) -> dict[str, str]:
    """The verdicts of a sequential test by column head."""
    if row.race is None:
        return {}
    local, best = (
        "" if found is None else bound_text(metric, found)
        for found in (None if row.over_local is None else row.over_local.interval, row.from_best)
    )
    cells = str(row.race.seeds or ""), local, row.race.against_local, best, row.race.who_is_best
    return dict(zip(RACE_HEADS, cells, strict=True))


def _numbers(name: str, found: Verdict | None) -> dict[str, float | None]:
    """The intervals, p, and detectable size of a difference."""
    low, high = getattr(found, "resampled", None) or (None, None)
    return {
        **ends_of(name, found and found.interval),
        f"{name}_resampled_low": low,
        f"{name}_resampled_high": high,
        **{f"{name}_{part}": getattr(found, part, None) for part in ("p_adjusted", "resolves", "seeds_needed")},
    }


OTHER_POINT = {"after_agg": "after_fit", "after_fit": "after_agg"}
"""The evaluation point that the answer does not use."""


def score_table(
    rows: Sequence[LeaderboardRow], metric: Metric, failures: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[str], list[list[Cell]]]:
    """Heads and rows of the table, without empty columns. Failed methods come last."""
    worst = worst_label([count for row in rows for count in row.scored])
    texts = [_score_texts(row, metric, worst) for row in rows]
    heads = ["method", "score", *(texts[0] if texts else ())]
    marks, numbers = estimator_marks([row.estimator for row in rows]), footnote_numbers(row.remarks for row in rows)
    lines = []
    for place, (row, own, mark) in enumerate(zip(rows, texts, marks, strict=True), 1):
        score = Cell(row.shown(row.score, metric.number), place if place < 3 else 0, row.tied, row.tone)
        feet = "".join(f" [{numbers[line]}]" for line in row.remarks)
        lines.append([Cell(row.label + row.mark + mark + feet), score, *map(Cell, own.values())])
    lines += [[Cell(label), Cell("failed"), *[Cell("")] * (len(heads) - 2)] for label in failures]
    return typeset.without_empty_columns(heads, lines, 2)


def _score_texts(row: LeaderboardRow, metric: Metric, worst: str) -> dict[str, str]:
    """What is beside a score, by head. worst: that of the worst tenth."""
    gain, number = row.over_local, metric.number
    texts = {
        "clients with a score": scored_text(row.scored, row.clients),
        "sd": _if_known(number, row.score.sd),
        "pooled": _if_known(number, row.pooled),
        "weighted": _if_known(number, row.weighted),
        OTHER_POINT[row.point].replace("_", " "): "" if row.other is None else number(row.other.mean),
        worst: row.shown(row.worst, number),
        "client sd": _if_known(number, row.spread),
        "newcomers": row.shown(row.newcomers, number),
        "common test": row.shown(row.common, number),
    }
    if row.race is not None:
        return texts | race_cells(row, metric)
    known = gain if isinstance(gain, Contrast) else None
    return texts | {
        "over local": "" if known is None else with_half(known.interval, metric.difference, number),
        "p (adjusted)": _if_known(p_text, None if known is None else known.p_adjusted).removeprefix("= "),
        "better off": "" if known is None else share_text(known.better_off),
    }


def cost_table(rows: Sequence[LeaderboardRow]) -> tuple[list[str], list[list[Cell]]]:
    """Heads and rows of the cost table, without empty columns."""
    texts = [
        {
            "method": row.label,
            "candidates": str(row.points),
            "parameters": row.parameters,
            "shared": row.shared,
            "steps": _if_known("{:.0f}".format, row.steps),
            "MB": _if_known(_megabytes, row.traffic),
            "seconds": _if_known("{:.3g}".format, row.seconds),
            "CPU seconds": _if_known("{:.3g}".format, row.cpu_seconds),
            "rounds to local": _if_known(str, row.target_round),
            "MB to local": _if_known(_megabytes, row.target_bytes),
        }
        for row in rows
    ]
    heads = [*texts[0]] if texts else ["method", "candidates"]
    return typeset.without_empty_columns(heads, [[*map(Cell, own.values())] for own in texts], 2)


def _if_known(form: Callable[[Any], str], value: float | None) -> str:
    return "" if value is None else form(value)


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.3g}"


def reasons(failures: Mapping[str, str]) -> list[str]:
    """Why each method without a score has none."""
    return [f"{label} failed: {why}" for label, why in failures.items()]


def leaderboard_legend(rows: Sequence[LeaderboardRow], metric: Metric) -> str:
    """The legend of the table."""
    said = estimator_remark(metric, [row.estimator for row in rows])
    over = kind_of([row.score for row in rows])
    worst = worst_label([count for row in rows for count in row.scored])
    is_race = any(row.race is not None for row in rows)
    note = race_leaderboard_note(worst) if is_race else leaderboard_note(over, worst)
    later = NEWCOMERS_NOTE if any(row.newcomers is not None for row in rows) else ""
    common = COMMON_NOTE if any(row.common is not None for row in rows) else ""
    weighted = WEIGHTED_NOTE if any(row.weighted is not None for row in rows) else ""
    feet = [f"[{number}] {line}" for line, number in footnote_numbers(row.remarks for row in rows).items()]
    return "; ".join(filter(None, [note, weighted, later, common, said, *feet]))


def point_suffix(rows: Sequence[LeaderboardRow]) -> str:
    """The evaluation point of the scores."""
    return f" {POINT_NAMES[rows[0].point]}" if rows else ""


def leaderboard_text(
    rows: Sequence[LeaderboardRow], metric: Metric, failures: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Aligned plain text; `=` marks methods that cannot be told from the best."""
    what = f"{metric.label} in %" if metric.share else metric.label
    scores, costs = typeset.plain_table(*score_table(rows, metric, failures)), typeset.plain_table(*cost_table(rows))
    return f"{scores}\ntest {what}{point_suffix(rows)}; {leaderboard_legend(rows, metric)}\n\n{costs}\n{SPENT}"


def leaderboard_note(over: str, worst: str) -> str:
    """What the numbers of a table mean.

    over: what the intervals of scores and differences cover. worst: the head of the column of the worst clients.
    """
    return (
        f"± half of the 95 % interval {over}{'' if over == SEEDS else f' ({worst}: over seeds)'}, sd over seeds; "
        f"pooled over all test samples; {clients_note(worst)}; better off with its 95 % interval, if seeds differ; "
        "p adjusted for the number of comparisons, = cannot be told from the best by it"
    )


def race_leaderboard_note(worst: str) -> str:
    """The same of a study with looks."""
    return (
        f"sd over seeds; {clients_note(worst)}; "
        "methods have different numbers of seeds and are ordered by their paired difference from the first; "
        "differences are those of the seeds that decided them, later seeds change the scores only; "
        "in brackets simultaneous intervals; = may be the best"
    )


NEWCOMERS_NOTE = "newcomers: clients that joined after the last round, after their most local epochs"
SPENT = (
    "candidates of tuning; parameters of a client's model, and those that clients share; steps (the pooled model's "
    "own) and MB per client, both ways, and seconds of a whole run by the clock, which depend on what else the machine "
    "does, and of all processors; rounds and MB per client until the mean curve first reaches local's last score"
)


def write_tables(
    rows: Sequence[LeaderboardRow], metric: Metric, folder: Path, failures: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Writes table.csv, table.md and table.tex."""
    heads, table = score_table(rows, metric, failures)
    said = "; ".join([f"Test {metric.label}{point_suffix(rows)}", leaderboard_legend(rows, metric), *reasons(failures)])
    costs = typeset.markdown(*cost_table(rows))
    write_atomically(folder / "table.csv", leaderboard_frame(rows, failures).to_csv(index=False))
    write_atomically(
        folder / "table.md", f"{typeset.markdown(heads, table)}\n\n{said}.\n\n{costs}\n\n{sentence(SPENT)}.\n"
    )
    write_atomically(folder / "table.tex", f"% {said}\n{typeset.latex(heads, table)}")
