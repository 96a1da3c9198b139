"""Two methods over two seeds, whose table shows every choice of the round."""

import math

import pandas as pd

from fedbench.results.schema import COST_KEYS, score_keys
from fedbench.results.tables import FinalScores, final_table
from fedbench.tasks import load

TASK = load("classification")
ACCURACY, ERROR = TASK.primary, load("regression").primary
METRICS = ["seed", "round", "point", *score_keys(TASK), "clients", *COST_KEYS, "failed"]
TESTS = {"fedcac": {0: [0.6, 0.9, 0.8], 1: [0.5, 0.6, 0.7]}, "local": {0: [0.5, 0.6, 0.7], 1: [0.5, 0.55, 0.6]}}
VALS = {0: [0.1, 0.2, 0.1], 1: [0.1, 0.2, 0.3]}


def metrics(tests: dict[int, list[float]], points: tuple[str, ...] = ("after_fit", "after_agg")) -> pd.DataFrame:
    rows = [
        {
            "seed": s,
            "round": r,
            "point": p,
            "test_accuracy": v,
            "val_accuracy": VALS[s][r - 1],
            "test_worst_tenth": v / 2,
            "clients": 2,
        }
        for s, values in tests.items()
        for r, v in enumerate(values, 1)
        for p in points
    ]
    return pd.DataFrame(rows, columns=METRICS)


def clients(tests: dict[int, list[float]]) -> pd.DataFrame:
    rows = [
        {"seed": s, "round": r, "point": p, "client": c, "test_accuracy": v + d, "test_n": 10 + 20 * c}
        for s, values in tests.items()
        for r, v in enumerate(values, 1)
        for p in ("after_fit", "after_agg")
        for c, d in ((0, -0.05), (1, 0.05))
    ]
    return pd.DataFrame(rows)


def both(**estimators: str) -> pd.DataFrame:
    """The final table. estimators: of methods whose scores are means over batches."""
    frames = {m: metrics(t) for m, t in TESTS.items()}
    own = {m: clients(t).assign(test_n=math.nan) if m in estimators else clients(t) for m, t in TESTS.items()}
    return final_table(FinalScores.of(ACCURACY, frames, own), estimators)


def of_errors() -> pd.DataFrame:
    """The same with errors in the place of accuracies, of which less is better."""
    frames, own = ({m: in_errors(make(t)) for m, t in TESTS.items()} for make in (metrics, clients))
    return final_table(FinalScores.of(ERROR, frames, own))


def in_errors(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns=lambda name: name.replace("accuracy", "mse"))


def unvalidated() -> pd.DataFrame:
    """The table of one method that held nothing out, without its clients."""
    return final_table(FinalScores.of(ACCURACY, {"local": metrics(TESTS["local"]).assign(val_accuracy=math.nan)}))
