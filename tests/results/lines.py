"""Lines and rows of records, as small as can be."""

from fedbench.results.schema import CLIENTS_SCHEMA, as_json, metrics_line
from fedbench.tasks import load

KEYS = ["seed", "round", "point", "val_accuracy", "test_accuracy", "val_loss", "test_loss", "test_worst_tenth"]
KEYS += ["test_spread", "clients", "train_loss", "steps", "bytes_up", "bytes_down", "failed"]


def line(seed: int, number: int, point: str, test: float, val: float | None = None, **more) -> str:
    scores = {"test_accuracy": test, "test_worst_tenth": test / 2} | ({} if val is None else {"val_accuracy": val})
    return as_json(metrics_line(load("classification"), seed, number, point, scores, 2, **more))


def clients(rows: list[tuple]) -> dict[str, list]:
    return dict(zip(CLIENTS_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
