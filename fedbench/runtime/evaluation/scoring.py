"""Scores of clients' models on a host, and what a run keeps of the evaluated ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
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
from fedbench.runtime.evaluation.pooled_validation import needs_pooling, pooled_message
from fedbench.runtime.exchange import ClientTask, Report, Scores
from fedbench.runtime.messages.transfer import on_cpu
from fedbench.runtime.observers.kept_outcomes import outcomes_of
from fedbench.runtime.observers.kept_predictions import sends_outputs
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
        """The model, or the predictor, that the learner evaluates."""
        return partial(scores_of, self.method, self.model) if isinstance(self.model, Predictor) else self.model

    @property
    def has_own_loss(self) -> bool:
        """Whether the loss is that of another model."""
        return isinstance(self.model, Predictor) and self.model.loss_of is not None


class Scorer:
    """Evaluates models of clients. data: of the host; clients: their number in the run."""

    def __init__(self, config: Config, data: Any, clients: int) -> None:
        self.config, self.data, self.clients = config, data, clients

    def score(self, task: ClientTask, evaluated: Evaluated, report: Report) -> None:
        """Write the scores of a model into a report, with what the task keeps of it."""
        options, scores = self.config.evaluate, Scores()
        self._keep_model(task, evaluated, report)
        for part, split in evaluated.held.items():
            outputs: Outputs | None = [] if self._needs_outputs(task, evaluated, part) else None
            groups = self.data.groups(split) if options.by and part == "test" else {}
            scores[part] = self._score(evaluated, split, groups, outputs)
            if outputs is not None:
                self._keep_outputs(task, evaluated, part, outputs, report)
        if options.module_metrics and isinstance(evaluated.model, Weights):
            for part, score in scores.items():
                score |= evaluated.learner.module_metrics(evaluated.model, evaluated.held[part])
        if options.common_test and evaluated.point != "new_clients" and "test" in evaluated.held:
            pooled = self.data.split(range(self.clients), "test", evaluated.held["test"].key)
            scores[COMMON] = self._score(evaluated, pooled)
        report.scores[evaluated.point] = scores

    def reuse(self, known: str, point: str, task: ClientTask, report: Report) -> None:
        """Let the scores of another point, whose model is the same, count at this one too."""
        report.scores[point] = report.scores[known]
        if point in task.outcomes and known in report.outcomes:
            report.outcomes[point] = report.outcomes[known]

    @staticmethod
    def _score(
        evaluated: Evaluated,
        split: Any,
        groups: Mapping[str, Tensor] = MappingProxyType({}),
        outputs: Outputs | None = None,
    ) -> Score:
        """The score on a split and its groups, in which the loss may be that of another model."""
        model, learner = evaluated.model, evaluated.learner
        score = learner.evaluate(evaluated.predictor, split, groups, outputs)
        if isinstance(model, Predictor) and model.loss_of is not None:
            own = learner.evaluate(model.loss_of, split, groups)
            score |= {name: pair for name, pair in own.items() if name.partition("/")[0] == learner.task.loss_metric}
        return score

    def _keep_model(self, task: ClientTask, evaluated: Evaluated, report: Report) -> None:
        model, flat = evaluated.model, evaluated.learner.flat
        saves = self.config.save_models and evaluated.point in task.keep
        if saves and isinstance(model, Weights) and (state := flat.trained_state_dict(model)):
            report.models[evaluated.point] = Message(**state)

    def _keeps_predictions(self, task: ClientTask, evaluated: Evaluated) -> bool:
        return evaluated.point in task.keep and sends_outputs(self.config.save_predictions, evaluated.learner.task)

    def _needs_outputs(self, task: ClientTask, evaluated: Evaluated, part: str) -> bool:
        if part == "val":
            return needs_pooling(evaluated.learner.task)
        return self._keeps_predictions(task, evaluated) or evaluated.point in task.outcomes

    def _keep_outputs(
        self, task: ClientTask, evaluated: Evaluated, part: str, outputs: Outputs, report: Report
    ) -> None:
        """Note in the report what the run keeps of the outputs on a part."""
        if part == "val":
            report.validation[evaluated.point] = on_cpu(pooled_message(outputs))
            return
        rows = evaluated.held[part].rows
        if self._keeps_predictions(task, evaluated):
            report.predictions[evaluated.point] = on_cpu(pooled_message(outputs).add(rows=rows))
        if evaluated.point in task.outcomes:
            report.outcomes[evaluated.point] = self._outcomes(evaluated, outputs, rows)

    def _outcomes(self, evaluated: Evaluated, outputs: Outputs, rows: Tensor) -> Message:
        """One number for each test sample and metric. rows: int64 [n], of the samples."""
        learner = evaluated.learner
        return outcomes_of(
            learner.task,
            outputs,
            rows,
            self.data.row_groups,
            learner.flat.dtype,
            by_batches=self.config.evaluate.accuracy == "batches",
            without=[learner.task.loss_metric] if evaluated.has_own_loss else [],
        )
