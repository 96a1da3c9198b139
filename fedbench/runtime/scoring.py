"""Scores of clients' models on a host, and what a run keeps of the evaluated ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from fedbench.config import Config
from fedbench.engine.learner import Learner
from fedbench.methods.base import Method
from fedbench.methods.client import Predictor
from fedbench.methods.contract import scores_of
from fedbench.methods.messages import Message
from fedbench.module.weights import Weights
from fedbench.results.schema import COMMON
from fedbench.runtime.exchange import ClientTask, Report, Scores
from fedbench.runtime.messages.transfer import on_cpu
from fedbench.runtime.observers.kept_outcomes import outcomes_of
from fedbench.runtime.observers.kept_predictions import sends_outputs
from fedbench.runtime.pooled_validation import needs_pooling, pooled_message
from fedbench.tasks import Score

Outputs = list[tuple[Tensor, Tensor]]
"""Outputs and targets of batches."""


@dataclass(frozen=True)
class Evaluated:
    """A client's model at an evaluation point. held: the splits of its data on which it is evaluated, by part."""

    point: str
    model: Weights | Predictor
    learner: Learner
    method: Method
    held: Mapping[str, Any]

    @property
    def predictor(self) -> Any:
        """What the learner evaluates."""
        return partial(scores_of, self.method, self.model) if isinstance(self.model, Predictor) else self.model

    @property
    def has_own_loss(self) -> bool:
        """Whether the loss is that of another model."""
        return isinstance(self.model, Predictor) and self.model.loss_of is not None


class Scorer:
    """Evaluates models of clients. data: of the host; clients: their number in the run."""

    def __init__(self, config: Config, data: Any, clients: int) -> None:
        self.config, self.data, self.clients = config, data, clients

    def score(self, task: ClientTask, own: Evaluated, report: Report) -> None:
        """Write the scores of a model into a report, with what the task keeps of it."""
        asked, scores = self.config.evaluate, Scores()
        self._keep_model(task, own, report)
        for part, split in own.held.items():
            outputs: Outputs | None = [] if self._needs_outputs(task, own, part) else None
            groups = self.data.groups(split) if asked.by and part == "test" else {}
            scores[part] = own.learner.evaluate(own.predictor, split, groups, outputs)
            if outputs is not None:
                self._keep_outputs(task, own, part, outputs, report)
        for part, score in scores.items():
            self._complete(score, own, own.held[part])
        if asked.common_test and own.point != "new_clients" and "test" in own.held:
            pooled = self.data.split(range(self.clients), "test", own.held["test"].key)
            scores[COMMON] = own.learner.evaluate(own.predictor, pooled)
        report.scores[own.point] = scores

    def reuse(self, known: str, point: str, task: ClientTask, report: Report) -> None:
        """Let the scores of another point, whose model is the same, count at this one too."""
        report.scores[point] = report.scores[known]
        if point in task.outcomes and known in report.outcomes:
            report.outcomes[point] = report.outcomes[known]

    def _complete(self, score: Score, own: Evaluated, split: Any) -> None:
        """Add the loss of another model, and the metrics that the module logs itself."""
        model, learner = own.model, own.learner
        if isinstance(model, Predictor) and model.loss_of is not None:
            name = learner.task.loss_metric
            score[name] = learner.evaluate(model.loss_of, split)[name]
        if self.config.evaluate.module_metrics and isinstance(model, Weights):
            score |= learner.module_metrics(model, split)

    def _keep_model(self, task: ClientTask, own: Evaluated, report: Report) -> None:
        saves = self.config.save_models and own.point in task.keep
        if saves and isinstance(own.model, Weights) and (state := own.learner.flat.trained_state_dict(own.model)):
            report.models[own.point] = Message(**state)

    def _keeps_predictions(self, task: ClientTask, own: Evaluated) -> bool:
        return own.point in task.keep and sends_outputs(self.config.save_predictions, own.learner.task)

    def _needs_outputs(self, task: ClientTask, own: Evaluated, part: str) -> bool:
        if part == "val":
            return needs_pooling(own.learner.task)
        return self._keeps_predictions(task, own) or own.point in task.outcomes

    def _keep_outputs(self, task: ClientTask, own: Evaluated, part: str, outputs: Outputs, report: Report) -> None:
        """Note in the report what the run keeps of the outputs on a part."""
        if part == "val":
            report.validation[own.point] = on_cpu(pooled_message(outputs))
            return
        rows = own.held[part].rows
        if self._keeps_predictions(task, own):
            report.predictions[own.point] = on_cpu(pooled_message(outputs).add(rows=rows))
        if own.point in task.outcomes:
            report.outcomes[own.point] = self._outcomes(own, outputs, rows)

    def _outcomes(self, own: Evaluated, outputs: Sequence[tuple[Tensor, Tensor]], rows: Tensor) -> Message:
        """One number for each test sample and metric. rows: int64 [n], of the samples."""
        learner = own.learner
        return outcomes_of(
            learner.task,
            outputs,
            rows,
            self.data.row_groups,
            learner.flat.dtype,
            by_batches=self.config.evaluate.accuracy == "batches",
            without=[learner.task.loss_metric] if own.has_own_loss else [],
        )
