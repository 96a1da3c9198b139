"""Clients without a score: their samples leave a metric undefined, so that means are over the other clients."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from fedbench.data.partitions import Partition
from fedbench.data.partitions.client_names import client_names
from fedbench.data.partitions.label_noise import client_targets
from fedbench.results.schema import SPLITS
from fedbench.results.unscored import unknown_line
from fedbench.runtime.exchange import Scores
from fedbench.runtime.resolved import ResolvedRun
from fedbench.runtime.server.sampling import evaluated_clients
from fedbench.runtime.uploads.attacks import attackers
from fedbench.tasks import Metric


def undefined_metrics(
    run: ResolvedRun, dealt: Partition, clients: Sequence[int]
) -> dict[tuple[str, str], dict[int, str]]:
    """Why metrics of clients have no value whatever the outputs are: by split and metric, then by client."""
    names = [metric.name for metric in run.task.metrics if not metric.over_samples]
    reasons: dict[tuple[str, str], dict[int, str]] = {}
    for split, client in ((split, client) for split in SPLITS for client in clients if names):
        targets = client_targets(run.dataset, dealt, run.config, client, split)
        for metric in names if len(targets) else ():
            if why := run.task.undefined(metric, targets):
                reasons.setdefault((split, metric), {})[client] = why
    return reasons


def unscored_before(run: ResolvedRun, dealt: Partition, seed: int) -> list[str]:
    """Lines on clients without a score that are known before round 1 of this seed. dealt: its partition."""
    clients = len(dealt.clients)
    malicious = attackers(seed, clients, run.config.attack)
    evaluated = evaluated_clients(seed, clients, run.config.evaluate.clients, malicious)
    return [*Unscored(run, dealt, seed, evaluated).first_lines()]


class Unscored:
    """Says which evaluated clients of a run of one seed have no score by a metric that is no mean over samples."""

    def __init__(self, run: ResolvedRun, dealt: Partition, seed: int, evaluated: Sequence[int]) -> None:
        self.run, self.dealt, self.seed, self.evaluated = run, dealt, seed, evaluated
        self.undefined = undefined_metrics(run, dealt, evaluated)

    def first_lines(self) -> Iterator[str]:
        """Lines on clients without a score, as far as known before round 1."""
        for split, metric in self._both():
            if reasons := self.undefined.get((split, metric.name)):
                yield self._line(split, metric, reasons)

    def lines(self, scores: Mapping[int, Scores]) -> Iterator[str]:
        """Lines on clients whose lack of a score only scores show."""
        for split, metric in self._both():
            known = self.undefined.get((split, metric.name), {})
            lack = {c: "" for c, points in scores.items() if points.get(split) and metric.name not in points[split]}
            if lack.keys() - known.keys():
                yield self._line(split, metric, lack | known)

    def _both(self) -> Iterator[tuple[str, Metric]]:
        return ((split, metric) for split in SPLITS for metric in self.run.task.metrics if not metric.over_samples)

    def _line(self, split: str, metric: Metric, reasons: Mapping[int, str]) -> str:
        what = f"{'validation ' * (split == 'val')}{metric.label}"
        return f"seed {self.seed}: {unknown_line(what, reasons, len(self.evaluated), self._name)}"

    def _name(self, client: int) -> str:
        return self._names[client] or f"client {client}"

    @cached_property
    def _names(self) -> list[str]:
        return client_names(self.run.dataset, self.dealt)
