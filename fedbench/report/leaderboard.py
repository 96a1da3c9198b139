"""The table of a comparison: scores, comparisons with local and the best, and costs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from fedbench.report import typeset
from fedbench.report.answer import doubts
from fedbench.report.race import RACE_HEADS, RaceVerdicts, race_order, race_verdicts
from fedbench.report.scores import CLIENTS_NOTE, COMMON_NOTE
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.tones import tone_of
from fedbench.report.typeset import Cell, sentence
from fedbench.results.contrasts import Contrast, block_ranks, family, stricter
from fedbench.results.estimators import estimator_marks, estimator_remark
from fedbench.results.files import write_atomically
from fedbench.results.newcomers import after_most_epochs
from fedbench.results.plan import point_name
from fedbench.results.statistics import Interval, interval
from fedbench.results.tables import BASELINE, LAST, REFERENCES, common_scores, pooled_scores, worst_tenth_over_seeds
from fedbench.tasks import Metric


@dataclass(frozen=True)
class LeaderboardRow:
    """A method. score, other: test scores at the last round, at the study's point and at the other point.

    failed, why: number of seeds without a score because their run failed or diverged, and the first reason.
    estimator: what a client's score is averaged over. pooled: the score over all test samples, if counted. worst,
    spread: mean of the worst tenth of clients, and standard deviation over clients, each of a seed and over seeds.
    over_local, behind: against local training and against the best; None for these two themselves. points, chosen:
    the number of tuned points and the best one. parameters, shared: `model_sizes`. steps, traffic (bytes, both
    ways), seconds of the clock and of all processors: of the whole run, per client except for seconds and the steps
    of a pooled model. newcomers: the score of clients that joined after the last round, after their most local
    epochs. common: the score of the clients' models on the test samples of all clients. target_round, target_bytes:
    when the mean curve first reaches local's last score, if ever. verdicts: those of a race, in place of both
    contrasts. tone: the colour of its score (`tones`).
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
    over_local: Contrast | None
    behind: Contrast | None
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
    verdicts: RaceVerdicts | None = None
    newcomers: Interval | None = None
    common: Interval | None = None

    @property
    def tied(self) -> bool:
        """Whether it cannot be told from the best."""
        if self.verdicts is not None:
            return self.verdicts.may_be_best
        return self.behind is not None and not self.behind.sign

    @property
    def mark(self) -> str:
        """The remark after a score that lacks seeds."""
        count = len(self.score.values)
        return f" ({count} of {count + self.failed} seeds)" if self.failed else ""


def leaderboard(study: Study, margin: float | None = None) -> list[LeaderboardRow]:
    """The methods in the study's order: best mean first, references last.

    margin: a difference too small to matter, in units of the metric; differences surely below it are called equal.
    """
    labels = study.ordered
    if not labels:
        return []
    if study.race is not None:
        labels = race_order(study, study.race)
    local, behind = comparisons(study, labels, margin) if study.race is None else ({}, {})
    order = block_ranks(study.scores, [label for label in labels if label not in REFERENCES], study.point)
    target = study.final_score(BASELINE) if BASELINE in labels else None
    return [_row(study, label, local.get(label), behind.get(label), order.get(label), target) for label in labels]


def comparisons(
    study: Study, labels: Sequence[str], margin: float | None = None
) -> tuple[dict[str, Contrast], dict[str, Contrast]]:
    """Every method against local training, and the best against every other competing method, by label.

    These are two families. A pair in both gets the stricter correction, so that a report states one value.
    """
    best = labels[0]
    compared = partial(family, study.scores, point=study.point, margin=margin)
    others = [label for label in labels if label != BASELINE] if BASELINE in labels else []
    local = {c.method: c for c in compared([(label, BASELINE) for label in others])}
    behind = {c.other: c for c in compared([(best, label) for label in labels[1:] if label not in REFERENCES])}
    for label in [label for label in behind if BASELINE in (best, label)]:
        own = label if best == BASELINE else best
        local[own], behind[label] = stricter(local[own], behind[label]), stricter(behind[label], local[own])
    return local, behind


def _row(
    study: Study,
    label: str,
    over_local: Contrast | None,
    behind: Contrast | None,
    rank: float | None,
    target: float | None,
) -> LeaderboardRow:
    last, other, cost = study.last_rows(label), study.last_rows(label, OTHER_POINT[study.point]), study.summaries[label]
    over_all = pooled_scores(study.metric, study.scores.clients[label, study.point, LAST])
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
        interval(last[study.test].tolist()),
        interval(over_all).mean if over_all else None,
        interval(other[study.test].tolist()) if len(other) else None,
        worst_tenth_over_seeds(last),
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
        _tone(study, label, over_local),
        verdicts=None if study.race is None else race_verdicts(study, study.race, label),
        newcomers=after_most_epochs(study.metric, study.runs[label].newcomers()),
        common=common_scores(last, study.metric),
    )


def model_sizes(environment: Mapping[str, Any]) -> tuple[str, str]:
    """The numbers of parameters of a client's model, and of those that it shares, each model's where there are several.

    Empty if they were not recorded.
    """
    models = environment.get("models", {}).values()
    whole, shared = (", ".join(str(model[part]) for model in models) for part in ("parameters", "shared"))
    return whole, shared


SIGNS = {"better": 1, "worse": -1}
"""Signs of the verdicts of a race."""


def _tone(study: Study, label: str, over_local: Contrast | None) -> str:
    """The colour of what was decided against local training; none without it."""
    sign, alone, mean = 0, 0, 0.0
    if study.race is not None:
        if (told := study.race.over_local.get(label)) is not None:
            sign, mean = SIGNS.get(told.verdict, 0), told.bound.mean
    elif over_local is not None:
        sign, alone, mean = over_local.sign, over_local.sign_alone, over_local.gain.mean
    if BASELINE not in study.metrics and label not in REFERENCES:
        return ""
    return tone_of(label, sign, alone, is_doubtful=bool((sign or alone) and doubts(study, label, BASELINE, mean)))


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


NONE: Mapping[str, str] = MappingProxyType({})
"""No failed methods."""


def leaderboard_frame(rows: Sequence[LeaderboardRow], failures: Mapping[str, str] = NONE) -> pd.DataFrame:
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
                **{part: getattr(row.score, part) for part in ("mean", "sd", "low", "high")},
                "pooled": row.pooled,
                OTHER_POINT[row.point]: None if row.other is None else row.other.mean,
                **ends_of("worst_tenth", row.worst),
                "spread": row.spread,
                **({} if row.newcomers is None else ends_of("newcomers", row.newcomers)),
                **({} if row.common is None else ends_of("common", row.common)),
                "rank": row.rank,
                **_numbers("over_local", row.over_local),
                **ends_of("better_off", row.over_local.better_off if row.over_local else None),
                **_numbers("best_ahead", row.behind),
                "tied_with_best": row.tied,
                **({} if row.verdicts is None else row.verdicts.as_columns()),
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


def _numbers(name: str, found: Contrast | None) -> dict[str, float | None]:
    """The intervals, p, and detectable size of a difference."""
    low, high = (None, None) if found is None or found.resampled is None else found.resampled
    return {
        **ends_of(name, None if found is None else found.gain),
        f"{name}_resampled_low": low,
        f"{name}_resampled_high": high,
        **{f"{name}_{part}": getattr(found, part, None) for part in ("p_adjusted", "resolves", "seeds_needed")},
    }


def ends_of(name: str, found: Interval | None) -> dict[str, float | None]:
    """The columns of an interval."""
    parts = {name: "mean", f"{name}_low": "low", f"{name}_high": "high"}
    return {key: getattr(found, part, None) for key, part in parts.items()}


SCORES = ("method", "score", "sd", "pooled")
OF_CLIENTS = ("worst tenth", "client sd", "newcomers", "common test")
DIFFERENCES = ("over local", "p (adjusted)", "better off")
COSTS = (
    "method",
    "points",
    "parameters",
    "shared",
    "steps",
    "MB",
    "seconds",
    "CPU seconds",
    "rounds to local",
    "MB to local",
)
OTHER_POINT = {"after_agg": "after_fit", "after_fit": "after_agg"}
"""The evaluation point that the answer does not use."""


def score_table(
    rows: Sequence[LeaderboardRow], metric: Metric, failures: Mapping[str, str] = NONE
) -> tuple[list[str], list[list[Cell]]]:
    """Heads and rows of the table, without empty columns. Failed methods come last."""
    raced = any(row.verdicts is not None for row in rows)
    others = (OTHER_POINT[row.point].replace("_", " ") for row in rows[:1])
    heads = [*SCORES, *others, *OF_CLIENTS, *(RACE_HEADS if raced else DIFFERENCES)]
    lines = [_line(row, metric, place) for place, row in enumerate(rows, 1)]
    for line, row, mark in zip(lines, rows, estimator_marks([row.estimator for row in rows]), strict=True):
        line[0] = Cell(row.label + row.mark + mark)
    lines += [[Cell(label), Cell("failed"), *[Cell("")] * (len(heads) - 2)] for label in failures]
    kept = [i for i in range(len(heads)) if i < 2 or any(line[i].text for line in lines)]
    return [heads[i] for i in kept], [[line[i] for i in kept] for line in lines]


def cost_table(rows: Sequence[LeaderboardRow]) -> tuple[list[str], list[list[Cell]]]:
    """Heads and rows of the cost table, without empty columns."""
    lines = [
        [
            row.label,
            str(row.points),
            row.parameters,
            row.shared,
            "" if row.steps is None else f"{row.steps:.0f}",
            "" if row.traffic is None else f"{row.traffic / 1e6:.3g}",
            "" if row.seconds is None else f"{row.seconds:.3g}",
            "" if row.cpu_seconds is None else f"{row.cpu_seconds:.3g}",
            "" if row.target_round is None else str(row.target_round),
            "" if row.target_bytes is None else f"{row.target_bytes / 1e6:.3g}",
        ]
        for row in rows
    ]
    kept = [i for i in range(len(COSTS)) if i < 2 or any(line[i] for line in lines)]
    return [COSTS[i] for i in kept], [[Cell(line[i]) for i in kept] for line in lines]


def reasons(failures: Mapping[str, str]) -> list[str]:
    """Why each method without a score has none."""
    return [f"{label} failed: {why}" for label, why in failures.items()]


def leaderboard_legend(rows: Sequence[LeaderboardRow], metric: Metric) -> str:
    """The legend of the table."""
    said = estimator_remark(metric, [row.estimator for row in rows])
    note = RACE_NOTE if any(row.verdicts is not None for row in rows) else LEADERBOARD_NOTE
    later = NEWCOMERS_NOTE if any(row.newcomers is not None for row in rows) else ""
    common = COMMON_NOTE if any(row.common is not None for row in rows) else ""
    return "; ".join(filter(None, [note, later, common, said]))


def _line(row: LeaderboardRow, metric: Metric, place: int) -> list[Cell]:
    gain = row.over_local
    # Intervals for a fixed number of seeds do not hold for a race, which stops by what it sees.
    shown = with_half if row.verdicts is None else _mean_alone
    rest = [
        "" if row.score.sd is None else metric.number(row.score.sd),
        "" if row.pooled is None else metric.number(row.pooled),
        "" if row.other is None else metric.number(row.other.mean),
        "" if row.worst is None else shown(row.worst, metric.number),
        "" if row.spread is None else metric.number(row.spread),
        "" if row.newcomers is None else shown(row.newcomers, metric.number),
        "" if row.common is None else shown(row.common, metric.number),
    ]
    if row.verdicts is not None:
        rest += row.verdicts.cells()
    else:
        rest += [
            "" if gain is None else with_half(gain.gain, metric.difference, metric.number),
            "" if gain is None or gain.p_adjusted is None else p_text(gain.p_adjusted).removeprefix("= "),
            "" if gain is None else share_text(gain.better_off),
        ]
    score = Cell(shown(row.score, metric.number), place if place < 3 else 0, row.tied, row.tone)
    return [Cell(row.label), score, *map(Cell, rest)]


def point_suffix(rows: Sequence[LeaderboardRow]) -> str:
    """The evaluation point of the scores."""
    return f" {POINT_NAMES[rows[0].point]}" if rows else ""


def with_half(found: Interval, number: Callable[[float], str], half: Callable[[float], str] | None = None) -> str:
    """`91.2 ± 0.8`, or the mean alone."""
    return number(found.mean) + ("" if found.half is None else f" ± {(half or number)(found.half)}")


def _mean_alone(found: Interval, number: Callable[[float], str]) -> str:
    return number(found.mean)


def share_text(found: Interval) -> str:
    """`58 % (36 to 78)`, because the interval of a share is lopsided; the mean alone where all seeds agree."""
    low, high = found.low, found.high
    ends = "" if low is None or high is None or math.isclose(low, high) else f" ({100 * low:.0f} to {100 * high:.0f})"
    return f"{100 * found.mean:.0f} %{ends}"


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def leaderboard_text(rows: Sequence[LeaderboardRow], metric: Metric, failures: Mapping[str, str] = NONE) -> str:
    """Aligned plain text; `=` marks methods that cannot be told from the best."""
    what = f"{metric.label} in %" if metric.share else metric.label
    scores, costs = typeset.plain_table(*score_table(rows, metric, failures)), typeset.plain_table(*cost_table(rows))
    return f"{scores}\ntest {what}{point_suffix(rows)}; {leaderboard_legend(rows, metric)}\n\n{costs}\n{SPENT}"


LEADERBOARD_NOTE = (
    f"± half of the 95 % interval over seeds, sd over seeds; pooled over all test samples; {CLIENTS_NOTE}; better off "
    "with its 95 % interval, if seeds differ; p adjusted for the number of comparisons, = cannot be told from the best "
    "by it"
)
NEWCOMERS_NOTE = "newcomers: clients that joined after the last round, after their most local epochs"
RACE_NOTE = (
    f"sd over seeds; {CLIENTS_NOTE}; "
    "methods have different numbers of seeds and are ordered by their paired difference from the first; "
    "differences are those of the seeds that decided them, later seeds change the scores only; "
    "in brackets simultaneous intervals; = may be the best"
)
SPENT = (
    "tuned points; parameters of a client's model, and those that clients share; steps (the pooled model's own) and MB "
    "per client, both ways, and seconds of a whole run by the clock, which depend on what else the machine does, and "
    "of all processors; rounds and MB per client until the mean curve first reaches local's last score"
)


def write_tables(
    rows: Sequence[LeaderboardRow], metric: Metric, folder: Path, failures: Mapping[str, str] = NONE
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
