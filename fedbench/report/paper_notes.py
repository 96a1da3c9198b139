"""Marks and notes of tables for papers: which methods a table shows, who is marked, and what its numbers mean."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.report.answer import ahead_of_all, best_for_sure, reached_round, study_answer
from fedbench.report.doubts import with_doubt
from fedbench.report.evidence import kind_of
from fedbench.report.in_python import require_known
from fedbench.report.leaderboard import LeaderboardRow
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.settings_tables import settings_frame
from fedbench.report.study import POINT_NAMES, Study
from fedbench.report.typeset import Cell, ShownMethods, join_words, with_half
from fedbench.report.verdicts import BEST, BETTER, WORSE, mark_of
from fedbench.results.contrasts import Contrast, family
from fedbench.results.settings_file import Setting
from fedbench.results.tables import BASELINE
from fedbench.results.verdict import ALPHA, Verdict


@dataclass(frozen=True)
class Choice(ShownMethods):
    """The methods that a table shows. reference: the method that marks compare with, by default local."""

    reference: str | None = None

    def of(self, labels: Sequence[str]) -> list[str]:
        """The shown ones of these labels. Raises ConfigError for a method that is not among them."""
        require_known("methods", self.methods, labels)
        require_known("names", [*self.names], labels)
        require_known("reference", [self.reference] if self.reference else [], labels)
        return [*(self.methods or labels)]

    def name_column(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(method=frame["method"].map(self.name))


@dataclass(frozen=True)
class Marks:
    """The marks of a study's methods in a table. rows: its leaderboard; reference: the method that marks compare with.

    Raises ConfigError for a sequential test with another reference than local training.
    """

    study: Study
    rows: Mapping[str, LeaderboardRow]
    reference: str

    def __post_init__(self) -> None:
        if self.study.sequential_test is not None and self.reference != BASELINE:
            only = f"a comparison with --until-decided tests against {BASELINE} only"
            raise ConfigError(f"reference = {self.reference}: {only}")

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Of every other method against the reference."""
        if self.reference == BASELINE:
            return {label: row.over_local for label, row in self.rows.items() if row.over_local is not None}
        others = [(label, self.reference) for label in self.rows if label != self.reference]
        verdicts = family(self.study.scores, others, self.study.point)
        return {verdict.method: with_doubt(self.study, verdict) for verdict in verdicts}

    @cached_property
    def doubts(self) -> dict[str, str]:
        """Why it is not certain that methods are better or worse than the reference, although tests say so."""
        doubts = {label: verdict.doubt for label, verdict in self.verdicts.items() if verdict.sign}
        return {label: doubt for label, doubt in doubts.items() if doubt and not self.rows[label].is_reference}

    @cached_property
    def marks(self) -> dict[str, str]:
        """The marks of the methods that are better or worse than the reference, in brackets where there is a doubt."""
        marks = {m: mark_of(verdict) for m, verdict in self.verdicts.items() if not self.rows[m].is_reference}
        return marks | ({self.ahead: marks.get(self.ahead, "") + BEST} if self.ahead else {})

    @cached_property
    def best(self) -> str | None:
        """The method that the study names as the best of several."""
        return best_for_sure(self.study, [*self.rows.values()])

    @cached_property
    def ahead(self) -> str | None:
        """The method that is better than every other, if there is a doubt about it."""
        return None if self.best else ahead_of_all(self.study, [*self.rows.values()])

    def cell(self, label: str, seeds: str = "") -> Cell:
        """The score of a method. seeds: a remark that it lacks some."""
        row, metric = self.rows[label], self.study.metric
        text = with_half(row.score, metric.number) + seeds
        return Cell(text, place=int(label == self.best), mark=self.marks.get(label, ""))

    def how(self) -> str:
        """By which tests methods are compared; empty if there are too few seeds for one."""
        if self.study.sequential_test is not None:
            return "sequential tests of paired differences that hold together with 95 %"
        tested = [
            verdict for verdict in self.verdicts.values() if isinstance(verdict, Contrast) and verdict.p is not None
        ]
        if not tested:
            return ""
        count = max(contrast.comparisons for contrast in tested)
        corrected = f" after correction for {count} comparisons" if count > 1 else ""
        return f"paired t test {kind_of([contrast.interval for contrast in tested])}, p < {ALPHA:.2g}{corrected}"


def caption_of(study: Study) -> str:
    unfinished = [label for label in study.ordered if not study.summaries[label]["complete"]]
    when = "last round"
    if unfinished and study.plan.kind == "run":
        when = f"so far, after {reached_round(study)}"
    elif unfinished:
        when = f"last round so far (the runs of {join_words(unfinished)} are not complete)"
    return f"Test {study.metric.label} {POINT_NAMES[study.point]}{' in %' if study.metric.share else ''}, {when}."


def mean_note(rows: Sequence[LeaderboardRow]) -> str:
    counts = sorted({len(row.score.values) for row in rows})
    seeds = plural(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    over = kind_of([row.score for row in rows])
    alone = ", each by itself" if any(row.standing is not None for row in rows) else ""
    half = f" ± half of the 95 % interval {over} (Student t{alone})" if counts[-1] > 1 else ""
    return f"Mean over clients and {seeds}{half}"


def marks_note(choice: Choice, how: str, marks: Sequence[str]) -> str:
    """Explains the marks in a table, or says that there are none."""
    known = "".join(marks)
    meanings = " and ".join([f"{BETTER} better"] * (BETTER in known) + [f"{WORSE} worse"] * (WORSE in known))
    reference = choice.name(choice.reference or BASELINE)
    return how and f"{meanings or 'No method is significantly better or worse'} than {reference}: {how}"


def bold_note(marked: Marks, choice: Choice) -> str:
    """Explains what bold means, or why nothing is bold."""
    rows = [*marked.rows.values()]
    if len([row for row in rows if not row.is_reference]) < 2 or marked.study.plan.subject is not None:
        return ""
    if marked.ahead is not None:
        answer = choice.rename(study_answer(marked.study, rows))
        return f"{BEST} better than every other method, but in doubt: {answer}"
    if marked.best is None:
        return f"Nothing is in bold: {choice.rename(study_answer(marked.study, rows))}"
    hidden = "" if marked.best in choice.of([*marked.rows]) else f"; {choice.name(marked.best)}, the best, is not shown"
    return f"Bold: better than every other method by the same tests{hidden}"


def pooled_note(choice: Choice, shown: Sequence[str], references: Collection[str]) -> str:
    """Says which of the shown methods do not compete. references: all those of the study."""
    pooled = [choice.name(label) for label in shown if label in references]
    return f"{join_words(pooled)} trains on the pooled data of all clients and does not compete" if pooled else ""


def settings_numbers(survey: SettingsStudy, choice: Choice, shown: Sequence[str]) -> pd.DataFrame:
    frame = settings_frame(survey)
    return choice.name_column(frame[frame["method"].isin(shown)])


def shown_name(setting: Setting) -> str:
    """`alpha=0.1,participation=1` -> `alpha = 0.1, participation = 1`."""
    return setting.name.replace("=", " = ").replace(",", ", ")
