"""The scores of a run: those of the models that a round ends with, by evaluation point."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.methods.base import Method
from fedbench.runtime.evaluation.pooled_validation import PooledValidation
from fedbench.runtime.exchange import Report, Scores
from fedbench.runtime.observers.observer import EvaluatedRound, PointScores
from fedbench.runtime.observers.recorder import Recorder
from fedbench.runtime.server.round_record import RoundRecord, TrainedRound
from fedbench.runtime.server.sampling import Calendar


class RunScores:
    """Knows the scores of each client's last fit, which count in later rounds, in which others train.

    last_fit: of every client: the round of its last fit, 0 before the first, and the scores of that model. validation:
    their outputs on validation, if they are pooled.
    """

    def __init__(self, method: Method, calendar: Calendar, recorder: Recorder) -> None:
        self.method, self.calendar, self.recorder = method, calendar, recorder
        self.last_fit: dict[int, tuple[int, Scores]] = {}
        self.validation = PooledValidation(recorder.task)

    def take_fits(self, training: TrainedRound) -> None:
        """Note the scores of fits; none if a later one is to be shown, because that one may fail."""
        fits = [report for report in training.reports if report.trained]
        self.last_fit |= {fit.client: (training.round, fit.scores.get("after_fit", {})) for fit in fits}
        self.validation.take(fits)

    def forget_idle_models(self) -> None:
        """Have the models of clients that sit out evaluated again, if an extra pass changes them."""
        if type(self.method).idle_model is not Method.idle_model:
            self.last_fit = {}

    def forget_early_end(self) -> None:
        """Forget what a shorter run has evaluated only because it was to end sooner."""
        for client, (round, _) in self.last_fit.items():
            if round and not self.calendar.last_fits({client}, round):
                self.last_fit[client] = round, {}

    def evaluated(self, record: RoundRecord, reports: Sequence[Report], pooled: Mapping[str, float]) -> EvaluatedRound:
        """The scores of a round. pooled: the primary metric over the test samples of all, by point, if it is known."""
        costs, points = record.costs(), list[PointScores]()
        for point, scores in self._by_point(reports).items():
            more: dict[str, Any] = {"costs": costs} if point == "after_fit" else {}
            more |= {"pooled": pooled.get(point), "failed": record.failed}
            line = self.recorder.line(self.calendar.seed, record.number, point, scores, **more)
            source = self.method.after_fit if point == "after_fit" else point
            line = line | self.validation.columns(reports, source, [*scores])
            points.append(PointScores(point, scores, line))
        return EvaluatedRound(self.calendar.seed, record, points)

    def _by_point(self, reports: Sequence[Report]) -> dict[str, dict[int, Scores]]:
        """The scores of clients at the points that have any."""
        idle = [report for report in reports if "idle_model" in report.scores]
        self.last_fit |= {report.client: (0, report.scores["idle_model"]) for report in idle}
        self.validation.take(idle)
        last = {client: self.last_fit[client][1] for client in self.calendar.evaluated if client in self.last_fit}
        fit = {client: scores for client, scores in last.items() if scores}
        agg, whole = (
            {report.client: report.scores[point] for report in reports if point in report.scores}
            for point in ("after_agg", "global")
        )
        after_fit = {"fit": fit, "after_agg": agg, "global": whole}[self.method.after_fit]
        by_point = {"after_fit": after_fit, "after_agg": agg, "global": whole}
        return {point: scores for point, scores in by_point.items() if scores}
