"""What a client's accuracy is a mean over: its samples, or its batches, as some published tables have it."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.tasks import Metric

SAMPLES = "samples"


def estimator(config: Mapping[str, Any], metric: Metric) -> str:
    """`samples` or `batches of 32`, by the configuration of a run. Of all metrics accuracy alone knows batches."""
    asked = config.get("evaluate") or {}
    if asked.get("accuracy") != "batches" or metric.name != "accuracy":
        return SAMPLES
    return f"batches of {asked.get('batch_size')}"


def estimator_remark(metric: Metric, found: Sequence[str]) -> str:
    """What tables and pages say of their rows' estimators; nothing where all are means over samples."""
    if len(set(found)) > 1:
        return f"rows are marked by what {metric.label} is a mean over, and cannot be compared across marks"
    return "" if not found or found[0] == SAMPLES else f"{metric.label} as mean over {found[0]}"


def estimator_marks(found: Sequence[str]) -> list[str]:
    """What stands behind the label of each row: nothing, or where rows differ, ` (mean over samples)`."""
    return [f" (mean over {own})" if len(set(found)) > 1 else "" for own in found]
