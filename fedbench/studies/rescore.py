"""Scores kept predictions by any metric, without training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedbench.config.schema import EvaluateConfig
from fedbench.config.section import make_section
from fedbench.errors import ConfigError
from fedbench.results.estimators import SAMPLES
from fedbench.results.plan import Plan
from fedbench.results.predictions import PREDICTIONS_FOLDER, Predictions, read_predictions
from fedbench.results.reader import Records
from fedbench.results.settings_file import is_matrix
from fedbench.results.statistics import worst_tenth
from fedbench.tasks import Score, Task, mean_of

COLUMNS = ["method", "seed", "point", "client", "metric", "value", "n"]
POOLED = -1
"""Number of the client that has the test samples of all clients."""


def rescore(folder: str | Path, metrics: Sequence[str | Callable[..., Any]] | str | Callable[..., Any]) -> pd.DataFrame:
    """Metrics of the predictions that a run, or the final runs of a study, kept with `save_predictions`.

    metrics: of the task, package.module:function, or functions; a single one needs no list. Columns: method, seed,
    point, client (-1: the test samples of all clients together), metric, value (NaN if unknown), n (samples). Clients'
    accuracies are means over batches if the run's are, and losses those that it recorded. Raises ConfigError if there
    are no predictions.
    """
    folder, names = Path(folder), make_section(EvaluateConfig, {"metrics": metrics}, "evaluate.").metrics
    scored = []
    for method, run in _runs(folder):
        records = Records(run)
        task, batch, losses = records.task().with_metrics(names), _batch_size(records), _recorded_losses(records)
        for (seed, point), predictions in read_predictions(run).items():
            parts = {client: predictions.of(client) for client in dict.fromkeys(predictions.clients.tolist())}
            scores = {client: _score(task, own, batch) for client, own in parts.items()}
            scores = {POOLED: _score(task, predictions)} | scores
            _take_losses(scores, task.loss_metric, losses.get((seed, point), {}))
            parts[POOLED] = predictions
            scored += [((method, seed, point, client), own, len(parts[client])) for client, own in scores.items()]
    rows = [(*place, name, mean_of(score, name), count) for name in names for place, score, count in scored]
    return pd.DataFrame(rows, columns=COLUMNS)


def summary(folder: str | Path, table: pd.DataFrame) -> pd.DataFrame:
    """One row per metric, method and point, means over seeds.

    Columns: metric, method, point, seeds, mean (over clients), worst_tenth (of clients; NaN for a function that does
    not say whether higher is better), pooled (over the test samples of all clients).
    """
    _, first = next(iter(_runs(Path(folder))))
    task = Records(first).task().with_metrics([*dict.fromkeys(table["metric"])])
    known = {metric.name: metric for metric in task.metrics}
    undirected = {more.metric.name for more in task.further if not more.directed}
    rows = []
    for (metric, method, point), own in table.groupby(["metric", "method", "point"], sort=False):
        clients, pooled = own[own["client"] != POOLED], own[own["client"] == POOLED]
        # A mean over samples has a value for every client whose model has not diverged.
        is_mean = known[str(metric)].over_samples
        seeds = [values for _, values in clients.groupby("seed")["value"] if not (is_mean and values.isna().any())]
        worst = [worst_tenth(values.to_numpy(), known[str(metric)].higher) for values in seeds]
        worst = [nan for _ in seeds] if metric in undirected else worst
        columns = ([values.mean() for values in seeds], worst, pooled["value"])
        rows.append((metric, method, point, len(seeds), *(pd.Series(numbers).mean() for numbers in columns)))
    return pd.DataFrame(rows, columns=["metric", "method", "point", "seeds", "mean", "worst_tenth", "pooled"])


def _batch_size(records: Records) -> int | None:
    """The size of batches over which clients' accuracies are means, if they are."""
    return int(records.config()["evaluate"]["batch_size"]) if records.estimator() != SAMPLES else None


def _recorded_losses(records: Records) -> dict[tuple[int, str], dict[int, float]]:
    """By seed and point, each client's loss on test samples at the last round."""
    frame, column = records.clients(), f"test_{records.task().loss_metric}"
    last = frame[frame["round"] == frame.groupby("seed")["round"].transform("max")]
    return {
        (int(str(seed)), str(point)): dict(zip(own["client"].tolist(), own[column].tolist(), strict=True))
        for (seed, point), own in last.groupby(["seed", "point"])
    }


def _take_losses(scores: dict[int, Score], name: str, losses: Mapping[int, float]) -> None:
    """Puts recorded losses in the place of those of outputs, which may be no scores, such as fedproto's distances."""
    known = {client: score for client, score in scores.items() if client in losses and name in score}
    for client, score in known.items():
        score[name] = (losses[client] * score[name][1], score[name][1])
    if len(known) == len(scores) - 1:
        sums, counts = zip(*(score[name] for score in known.values()), strict=True)
        scores[POOLED][name] = (sum(sums), sum(counts))


def _score(task: Task, predictions: Predictions, batch: int | None = None) -> Score:
    """The score of outputs. batch: the size of batches over which accuracy is a mean; None: over samples."""
    outputs, targets = torch.from_numpy(predictions.outputs), torch.from_numpy(predictions.targets)
    size = batch or max(1, len(predictions))
    batches = [*zip(outputs.split(size), targets.split(size), strict=True)]
    return task.score_all(batches, torch.float32, by_batches=batch is not None)


def _runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """The method and folder of each run with predictions. Raises ConfigError if one of them kept none."""
    if is_matrix(folder):
        raise ConfigError(f"{folder}: holds several settings; give the folder of one, such as {folder}/settings/NAME")
    plan = Plan.read(folder)
    if (folder / PREDICTIONS_FOLDER).is_dir():
        yield plan.labels()[0], folder
        return
    final = [entry for label in plan.labels() for entry in plan.final(label) if entry.status == "done"]
    runs = list(dict.fromkeys((entry.label, folder / entry.path) for entry in final))
    if not runs or not all((path / PREDICTIONS_FOLDER).is_dir() for _, path in runs):
        finished = Records(folder).summary().get("complete") if plan.kind == "run" else bool(runs)
        why = "no predictions were kept; run it again with --save-predictions"
        raise ConfigError(f"{folder}: {why if finished else 'no run is finished; repeat its command'}")
    yield from runs
