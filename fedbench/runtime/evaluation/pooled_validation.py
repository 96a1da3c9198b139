"""The primary metric on the validation samples of all clients together, where it is no mean over samples.

Of a metric such as AUROC the mean over clients lacks those with one class, and of few samples it is mostly noise. So
hosts send the outputs on validation at every evaluation, 4 bytes for each output and sample, and points are chosen by
the metric of all samples.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from fedbench.methods.messages import Message
from fedbench.runtime.exchange import Report
from fedbench.tasks import Task, pooled_value

Outputs = dict[str, Tensor]
"""`outputs` [n, C] and `targets` [n, ...] of a client's validation samples."""


def needs_pooling(task: Task) -> bool:
    """Whether the primary metric is computed over all samples at once and is no mean over them."""
    is_of_all = task.primary.pooled or any(more.metric == task.primary for more in task.further)
    return is_of_all and not task.primary.over_samples


def pooled_score(task: Task, parts: Sequence[Outputs]) -> float | None:
    """The primary metric over the samples of all parts, one or more; None if it is unknown."""
    outputs, targets = (torch.cat([part[name] for part in parts]).numpy() for name in ("outputs", "targets"))
    return pooled_value(task, outputs, targets)


def pooled_message(batches: Sequence[tuple[Tensor, Tensor]]) -> Message:
    """The message of a host: the outputs in single precision and the targets of a client's batches."""
    outputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return Message(outputs=outputs.float(), targets=targets)


class PooledValidation:
    """The outputs of the evaluated clients on validation. last_fit: of every client, those after its last fit."""

    def __init__(self, task: Task) -> None:
        self.task, self.is_needed = task, needs_pooling(task)
        self.last_fit: dict[int, Outputs] = {}

    def take(self, reports: Sequence[Report]) -> None:
        """Note the outputs after the fits of these reports, and those of clients that have none yet."""
        for report in reports:
            if report.trained or "idle_model" in report.validation:
                sent = report.validation.get("after_fit" if report.trained else "idle_model")
                self.last_fit[report.client] = {} if sent is None else dict(sent.tensors)

    def columns(self, reports: Sequence[Report], source: str, clients: Collection[int]) -> dict[str, float | None]:
        """The column of a metrics line with the pooled value of these clients, if they have validation samples.

        source: where their outputs are: `fit` for those after the last fits, or a point of the reports.
        """
        if not self.is_needed:
            return {}
        held: Mapping[int, Outputs] = self.last_fit
        if source != "fit":  # a global model that is the personal one is not evaluated twice
            sent = {r.client: r.validation.get(source) or r.validation.get("after_agg") for r in reports}
            held = {client: dict(message.tensors) for client, message in sent.items() if message is not None}
        parts = [held[client] for client in sorted(clients) if held.get(client)]
        return {f"val_{self.task.primary.name}": pooled_score(self.task, parts)} if parts else {}
