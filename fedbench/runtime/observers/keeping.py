"""Keeps models, predictions and outcomes of the last evaluations of a run."""

from pathlib import Path
from typing import Any

from fedbench.data.partitions import Partition
from fedbench.runtime.build import RunParts
from fedbench.runtime.observers.kept_models import KeptModels
from fedbench.runtime.observers.kept_outcomes import KeptOutcomes
from fedbench.runtime.observers.kept_points import KeptPoints
from fedbench.runtime.observers.kept_predictions import KeptPredictions, sends_outputs
from fedbench.runtime.server.sampling import Calendar
from fedbench.runtime.server.server_half import ServerHalf


class Keeping:
    """The observers that keep something, and what they ask of a client's task."""

    def __init__(
        self, parts: RunParts, partition: Partition, server_half: ServerHalf, calendar: Calendar, folder: Path
    ) -> None:
        config, seed, task = parts.run.config, parts.seed, parts.run.task
        drawn = lambda round: calendar.trainers(calendar.participants(round))  # noqa: E731
        rounds, after_fit = config.rounds, parts.method.after_fit
        keeps_any = config.save_models or sends_outputs(config.save_predictions, task)
        self.points = KeptPoints(keeps_any, rounds, after_fit, drawn)
        self.outcome_points = KeptPoints(True, rounds, after_fit, drawn, with_global=True)
        self.evaluated = set(calendar.evaluated)
        self.models = KeptModels(parts, partition, server_half, self.points, folder)
        self.predictions = KeptPredictions(config, seed, self.points, folder, task)
        self.outcomes = KeptOutcomes(self.outcome_points, seed, folder)

    def of_task(self, client: int, number: int) -> dict[str, Any]:
        """The fields of a client's task in an exchange."""
        outcomes = self.outcome_points.models_to_keep(client, number) if client in self.evaluated else ()
        return {"keep": self.points.models_to_keep(client, number), "outcomes": outcomes}
