"""What W&B wrote offline: files that are a log of protobuf messages."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOG_HEADER, BLOCK = 7, 32768  # a .wandb file: seven bytes, then a LevelDB log


def segments(folder: Path, run_id: str) -> list[Path]:
    """The files of the offline segments of a run, oldest first."""
    return sorted(folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb"))


def mark_synced(segment: Path) -> None:
    """Have `wandb sync` leave a segment out, because W&B has its rounds by another way."""
    segment.with_suffix(".wandb.synced").touch()


def last_round(found: list[Path]) -> int | None:
    """The last round in the segments of a run, -1 where they have none; None without segments."""
    rounds = [int(row["round"]) for path in found for row in history(path) if "round" in row]
    return max(rounds, default=-1) if found else None


def history(path: Path) -> Iterator[dict[str, Any]]:
    """The rows logged to a .wandb file, in order; a torn end is left out."""
    for record in _records(path.read_bytes()):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[Any]:
    """The messages of a .wandb file."""
    from wandb.proto import wandb_internal_pb2

    parse = wandb_internal_pb2.__dict__["Record"].FromString  # made at import time, which type checkers cannot see

    message, position = b"", LOG_HEADER
    while position + 7 <= len(data):
        if (room := BLOCK - position % BLOCK) < 7:
            position += room
            continue
        _, length, part = struct.unpack_from("<IHB", data, position)
        chunk = data[position + 7 : position + 7 + length]
        if len(chunk) < length:
            return
        message, position = message + chunk, position + 7 + length
        if part in (1, 4):  # whole, or the last part
            yield parse(message)
            message = b""
