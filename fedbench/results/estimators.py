"""The units that a client's accuracy is a mean over: its samples, or, as in some published tables, its batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.tasks import Metric

SAMPLES = "samples"


def estimator(config: Mapping[str, Any], metric: Metric) -> str:
    """`samples` or `batches of 32`, by the configuration of a run. Only accuracy can be averaged over batches."""
    evaluate = config.get("evaluate") or {}
    if evaluate.get("accuracy") != "batches" or metric.name != "accuracy":
        return SAMPLES
    return f"batches of {evaluate.get('batch_size')}"


def estimator_remark(metric: Metric, kinds: Sequence[str]) -> str:
    """The remark of tables and reports on estimators; empty if all are means over samples."""
    if len(set(kinds)) > 1:
        return f"rows are marked by what {metric.label} is averaged over; rows with different marks are not comparable"
    return "" if not kinds or kinds[0] == SAMPLES else f"{metric.label} as mean over {kinds[0]}"


def estimator_marks(kinds: Sequence[str]) -> list[str]:
    """The mark after each row's label: empty, or ` (mean over samples)` if rows differ."""
    return [f" (mean over {kind})" if len(set(kinds)) > 1 else "" for kind in kinds]
