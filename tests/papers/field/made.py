"""A record of a field that never was, with the numbers that a test needs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedbench_papers.field.record import COLUMNS, FieldRecord

GAIN = ("gain", "gain_low", "gain_high")
POINT = "after_agg"
Ends = tuple[float, float, float]


def about(title: str, **more: Any) -> dict[str, Any]:
    """What is recorded of a setting."""
    return {
        "title": title,
        "like": f"{title} of yours",
        "kind": "labels",
        "point": POINT,
        "date": "2026-01-01",
        "metric": "accuracy",
        "margin": 0.02,
        "clients": 5,
        "samples": 40.0,
        "heterogeneity": 0.5,
        "runs": 30,
        "hours": 0.5,
        "estimate": 0.4,
        "config": {"model": {"name": "mlp"}, "rounds": 20},
        "chosen": {},
        "refused": {},
        "failed": {},
        "degenerate": [],
        "doubts": {},
        **more,
    }


def rows_of(
    setting: str,
    scores: Mapping[str, Sequence[float]],
    over_local: Mapping[str, Ends],
    best: Sequence[str] = (),
    over_fine_tuned: Mapping[str, Ends] | None = None,
    seconds: Mapping[str, float] | None = None,
    worst: Mapping[str, float] | None = None,
    point: str = POINT,
) -> pd.DataFrame:
    """scores: by method, one per seed. Ends: mean, low and high of a difference. best: the methods that may be best."""
    rows: list[tuple[Any, ...]] = []
    for method, values in scores.items():
        rows += [(setting, method, None, seed, point, "score", value) for seed, value in enumerate(values)]
        if values:
            rows.append((setting, method, None, None, None, "seconds", (seconds or {}).get(method, 1.0)))
        if method != "centralized":
            rows.append((setting, method, None, None, point, "may_be_best", float(method in best)))
        if worst:
            rows.append((setting, method, None, 0, point, "worst_tenth", worst[method]))
    for against, gains in (("local", over_local), ("fedavg-ft", over_fine_tuned or {})):
        for method, ends in gains.items():
            rows += [(setting, method, against, None, point, name, end) for name, end in zip(GAIN, ends, strict=True)]
            rows.append((setting, method, against, None, point, "withheld", 0.0))
            rows.append((setting, method, against, None, point, "seeds", 5.0))
    return pd.DataFrame(rows, columns=[*COLUMNS]).astype({"seed": "Int32"})


UP, OPEN, DOWN = (0.05, 0.03, 0.07), (0.01, -0.03, 0.05), (-0.1, -0.15, -0.05)
SCORES = {"local": [0.7, 0.72], "fedavg": [0.6, 0.62], "fedavg-ft": [0.75, 0.77], "fedper": [0.76, 0.78]}


def made_record() -> FieldRecord:
    """Clothes, where fedavg-ft and fedper are better than local training, and Lungs, where nothing is told."""
    gains, tuned = {"fedavg": DOWN, "fedavg-ft": UP, "fedper": UP}, {"fedavg": DOWN, "fedper": OPEN}
    seconds = {"local": 1.0, "fedavg": 1.0, "fedavg-ft": 1.0, "fedper": 0.9}
    worst = {"local": 0.5, "fedavg": 0.3, "fedavg-ft": 0.55, "fedper": 0.45}
    one = rows_of("clothes", SCORES, gains, ["fedavg-ft", "fedper"], tuned, seconds, worst)
    two = rows_of("lungs", SCORES, dict.fromkeys(gains, OPEN), [*SCORES], seconds=seconds)
    record = FieldRecord().with_setting("clothes", one, about("Clothes"))
    return record.with_setting("lungs", two, about("Lungs", heterogeneity=None, refused={"fedbn": "no BatchNorm"}))
