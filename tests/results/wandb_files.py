"""Lines of records, and what a W&B file holds of them."""

import json
import struct
from pathlib import Path

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from fedbench.config import Config
from fedbench.results.loggers import (
    make_loggers,
)
from fedbench.results.schema import metrics_line
from fedbench.tasks import load


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


def attach(folder, *names, resume=True, warn=pytest.fail, **wandb):
    config = Config(loggers=list(names), wandb=wandb)
    return make_loggers(config, folder, "0123456789ab", "train", resume=resume, warn=warn)


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
    wandb.teardown()  # finish() may return before W&B's own process has closed the file
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        histories = [r.history for r in wandb_records(path) if r.WhichOneof("record_type") == "history"]
        rows += [{"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in h.item} for h in histories]
    return rows
