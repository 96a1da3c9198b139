"""What a client's accuracy is averaged over: its samples, or, as in some published tables, its batches."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.tasks import Metric

SAMPLES = "samples"


def estimator(config: Mapping[str, Any], metric: Metric) -> str:
    """`samples` or `batches of 32`, by the configuration of a run. Only accuracy can be averaged over batches."""
    asked = config.get("evaluate") or {}
    if asked.get("accuracy") != "batches" or metric.name != "accuracy":
        return SAMPLES
    return f"batches of {asked.get('batch_size')}"


def estimator_remark(metric: Metric, found: Sequence[str]) -> str:
    """The remark of tables and reports on estimators; empty if all are means over samples."""
    if len(set(found)) > 1:
        return f"rows are marked by what {metric.label} is averaged over; rows with different marks are not comparable"
    return "" if not found or found[0] == SAMPLES else f"{metric.label} as mean over {found[0]}"


def estimator_marks(found: Sequence[str]) -> list[str]:
    """The mark after each row's label: empty, or ` (mean over samples)` if rows differ."""
    return [f" (mean over {own})" if len(set(found)) > 1 else "" for own in found]
