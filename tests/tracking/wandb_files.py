"""Lines of records, and what a W&B file holds of them."""

import json
import struct
from pathlib import Path

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from fedbench.config import Config
from fedbench.results.plan import Entry
from fedbench.results.schema import metrics_line
from fedbench.tasks import load
from fedbench.tracking.loggers import make_loggers


def lines(round_, seed=0, accuracy=0.5):
    return [
        line(seed, round_, "after_fit", accuracy + 0.1, costs=dict(train_loss=1.0, steps=5, bytes_up=8)),
        line(seed, round_, "after_agg", accuracy, failed=[(3, "loss is not finite")]),
    ]


def line(seed, round_, point, accuracy, **more):
    return metrics_line(load("classification"), seed, round_, point, {"test_accuracy": accuracy}, **more)


def traces(round_, seed=0, clients=3, name="lambda"):
    return [
        {"seed": seed, "round": round_, "client": c, "name": name, "value": round_ + c / 1000} for c in range(clients)
    ]


def attach(folder, *names, resume=True, warn=pytest.fail, entry=None, **wandb):
    config = Config(loggers=list(names), wandb=wandb)
    return make_loggers(config, folder, entry or Entry("final", "fedavg", {}, 0, "."), resume=resume, warn=warn)


def wandb_records(path: Path):
    """The records of a .wandb file, read as `wandb sync` does: a LevelDB log of protobuf messages."""
    data, position, message = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, length, part = struct.unpack_from("<IHB", data, position)
        message += data[position + 7 : position + 7 + length]
        position += 7 + length
        if part in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(message)
            message = b""


def wandb_history(folder: Path):
    """What all offline segments of a run hold: one dictionary per logged round, in order."""
    return [row for path in segments(folder) for row in OfflineRun(path).rows]


def segments(folder: Path):
    """The .wandb files of a run's folder, all written."""
    wandb.teardown()  # finish() may return before W&B's own process has closed the file
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"))


class OfflineRun:
    """A .wandb file read back. run: what W&B was told first; metrics: definitions by name; artifacts: by type."""

    def __init__(self, path: Path) -> None:
        self.folder, self.rows, self.config, self.summary = path.parent, [], {}, {}
        self.metrics, self.artifacts = {}, {}
        for record in wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.run = record.run
            elif kind == "history":
                self.rows.append(values(record.history.item))
            elif kind == "summary":
                self.summary |= values(record.summary.update)
            elif kind == "config":
                self.config |= values(record.config.update)
            elif kind == "metric":
                self.metrics[record.metric.name or record.metric.glob_name] = record.metric
            elif kind == "artifact":
                self.artifacts[record.artifact.type] = record.artifact

    def table(self, name: str):
        """Columns and rows of a table in the summary."""
        tree = json.loads((self.folder / "files" / self.summary[name]["path"]).read_text())
        return tree["columns"], tree["data"]


def values(items):
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
