"""`self.log` without a Trainer: what a module logs while it trains."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

REDUCTIONS: dict[Any, Callable[[Tensor], Tensor]] = {"sum": torch.sum, "max": torch.max, "min": torch.min}


@dataclass
class LoggedValue:
    """The values of a name in one epoch, or its metric object."""

    on_step: bool
    on_epoch: bool
    reduce_fx: Any
    metric: Metric | None = None
    values: list[Tensor | float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def last(self) -> Tensor | None:
        """The value of the last step."""
        value = self.metric._forward_cache if self.metric is not None else self.values[-1]
        return None if value is None else torch.as_tensor(value)

    def reduce(self) -> Tensor:
        """The value of the epoch: as in Lightning, means are weighted by batch sizes."""
        if self.metric is not None:
            return torch.as_tensor(self.metric.compute())
        values = as_vector(self.values)
        if self.reduce_fx in ("mean", "avg", torch.mean):
            sizes = torch.tensor(self.sizes, dtype=values.dtype)
            return (values * sizes).sum() / sizes.sum()
        return REDUCTIONS.get(self.reduce_fx, self.reduce_fx)(values)


def as_vector(values: Sequence[Tensor | float]) -> Tensor:
    """Numbers as one vector on the CPU, in double precision."""
    if any(isinstance(value, Tensor) for value in values):  # a GPU is waited for once
        return torch.stack([torch.as_tensor(v, dtype=torch.float64).reshape(()) for v in values]).cpu()
    return torch.tensor(values, dtype=torch.float64)


class Logs:
    """Replaces LightningModule.log and log_dict; cleared at the start of a fit."""

    def __init__(self) -> None:
        self.entries: dict[str, LoggedValue] = {}
        self.finished: dict[str, Tensor] = {}
        self.in_step, self.batch_size, self.muted = False, 1, False

    def clear(self) -> None:
        self.entries.clear()
        self.finished.clear()
        self.in_step, self.batch_size = False, 1

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Discards what the module logs in passes that are not part of training."""
        before, self.muted = self.muted, True
        try:
            yield
        finally:
            self.muted = before

    @contextmanager
    def capture(self) -> Iterator[dict[str, float]]:
        """Collects what the module logs in a pass, one number for each name, as of an epoch; leaves all else unchanged.

        The numbers are known after the block.
        """
        before, values = dict(vars(self)), dict[str, float]()
        vars(self).update(vars(Logs()))
        try:
            yield values
            values |= self.end_epoch()
        finally:
            vars(self).update(before)

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        **_: Any,
    ) -> None:
        """LightningModule.log with its defaults: per step inside a batch, else per epoch."""
        if self.muted:
            return
        entry = self.entries.get(name)
        if entry is None:
            by_step = self.in_step if on_step is None else on_step
            by_epoch = not self.in_step if on_epoch is None else on_epoch
            entry = self.entries[name] = LoggedValue(by_step, by_epoch, reduce_fx)
        if isinstance(value, Metric):
            entry.metric = value
        else:
            entry.values.append(value.detach() if isinstance(value, Tensor) else float(value))
            entry.sizes.append(batch_size or self.batch_size)

    def log_dict(self, dictionary: Mapping[str, Any] | MetricCollection, *args: Any, **options: Any) -> None:
        """LightningModule.log_dict."""
        if isinstance(dictionary, MetricCollection):
            dictionary = dict(dictionary.items(keep_base=False, copy_state=False))
        for name, value in dictionary.items():
            self.log(name, value, *args, **options)

    def callback_metrics(self) -> dict[str, Tensor]:
        """The values that a scheduler can monitor now: of earlier epochs, this step and, at its end, this epoch."""
        metrics = dict(self.finished)
        for name, entry in self.entries.items():
            if entry.on_step and (last := entry.last()) is not None:
                metrics[name] = last
                if entry.on_epoch:
                    metrics[f"{name}_step"] = last
            if entry.on_epoch and not self.in_step:
                metrics[name] = entry.reduce()
                if entry.on_step:
                    metrics[f"{name}_epoch"] = metrics[name]
        return metrics

    def end_epoch(self) -> dict[str, float]:
        """One number for every name logged in this epoch; resets metric objects."""
        self.finished = self.callback_metrics()
        values = {name: entry.reduce() for name, entry in self.entries.items()}
        for entry in self.entries.values():
            if entry.metric is not None:
                entry.metric.reset()
        self.entries.clear()
        return {name: float(value) for name, value in values.items() if value.numel() == 1}
