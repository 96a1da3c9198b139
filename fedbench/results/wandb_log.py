"""W&B as a mirror of a run's records: never asks, never hangs, never has a round twice or not at all."""

import json
import netrc
import os
import struct
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import wandb

from fedbench.config import Config

Mode = Literal["online", "offline", "disabled"]
TIMEOUT = 30  # seconds
TOLD = ("WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE")
"""Variables that mean the same on every machine, beside the key."""
LOG_HEADER, BLOCK = 7, 32768  # a .wandb file: seven bytes, then a LevelDB log


class WandbLog:
    """One W&B run for one run folder, continued under the same id when the run is resumed.

    Online only where an account is set up on this machine, else offline segments in `folder`/wandb, to be sent with
    `wandb sync --append`.
    """

    takes_distributions = True

    def __init__(
        self,
        config: Config,
        folder: Path,
        run_id: str,
        job_type: str,
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        group = config.wandb.group or f"{config.data.name}-{config.partition.name}"
        # One point may stand in several grids: each has a run of its own, or W&B would mix them.
        run_id = f"{run_id[:50]}-{sha256(f'{group}/{run_id}'.encode()).hexdigest()[:8]}"
        arguments = {
            "id": run_id,
            "resume": "allow",
            "dir": str(folder),
            "project": config.wandb.project,
            "entity": config.wandb.entity,
            "group": group,
            "name": config.name or f"{config.method.name} seed {config.seeds[0]}",
            "tags": [*config.wandb.tags, config.method.name, config.data.name, config.partition.name, job_type],
            "job_type": job_type,
            "reinit": "create_new",
        }
        self._segments = segments(folder, run_id)
        started = mode(config.wandb.mode)
        if config.wandb.mode == "online" and started == "offline":
            warn(
                "wandb.mode = online: no W&B account on this machine, logged offline; run `wandb login`, then "
                f"`wandb sync --append {folder}/wandb/offline-run-*`"
            )
        self.run = _start(started, arguments, warn)
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")

    def logged(self) -> int | None:
        """The last round that W&B really has, as of the start; None when there is no telling.

        Read back from the offline segments, because W&B's own process loses what it has not written when it dies;
        from the server for a run that is continued online.
        """
        known = [int(row["round"]) for path in self._segments for row in history(path)]
        if self.run.resumed:
            known += [int(self.run.summary["round"])] if "round" in dict(self.run.summary) else []
        return max(known, default=-1) if self._segments or self.run.resumed else None

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.run.config.update(params, allow_val_change=True)

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        drawn = {k: wandb.Histogram(v.tolist()) if isinstance(v, np.ndarray) else v for k, v in metrics.items()}
        self.run.log({"round": step, **drawn})

    def save(self) -> None:
        """Nothing to do: W&B's own process has taken the round."""

    def finalize(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "success" else 1)


def _start(mode: Mode, arguments: dict[str, Any], warn: Callable[[str], None]) -> Any:
    try:
        return wandb.init(mode=mode, settings=_settings(), **arguments)
    except wandb.Error as error:
        if mode != "online":
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        warn(f"W&B cannot be reached, logged offline ({first})")
        wandb.teardown()  # the failed start still holds the id
        return wandb.init(mode="offline", settings=_settings(), **arguments)


def _settings() -> wandb.Settings:
    """Quiet, no capture of the terminal, and a bound on every wait that the installed version can bound."""
    newer = {"finish_timeout": 4 * TIMEOUT, "x_transaction_log_flush_interval": 1}
    known = {key: value for key, value in newer.items() if key in wandb.Settings.model_fields}
    return wandb.Settings(silent=True, console="off", login_timeout=TIMEOUT, init_timeout=TIMEOUT, **known)


def mode(asked: str) -> Mode:
    """Online only with an account, because W&B would ask for one; `auto` follows WANDB_MODE as far as that goes."""
    from_environment = os.environ.get("WANDB_MODE", "")
    if asked == "auto" and from_environment == "disabled":
        return "disabled"
    if asked == "offline" or (asked == "auto" and from_environment in ("offline", "dryrun")):
        return "offline"
    return "online" if _has_account() else "offline"


def variables() -> dict[str, str]:
    """By which W&B on another machine knows the account of this one, be its key in the environment or in a file."""
    key = _key()
    told = {name: os.environ[name] for name in TOLD if name in os.environ}
    return {**told, **({"WANDB_API_KEY": key} if key else {})}


def _has_account() -> bool:
    """Whether W&B would find a login by itself."""
    return bool(os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or _key())


def _key() -> str | None:
    """That of a login: in the environment, in W&B's settings files or in netrc."""
    settings = wandb.setup(wandb.Settings(silent=True)).settings
    return os.environ.get("WANDB_API_KEY") or settings.api_key or _in_netrc(urlsplit(settings.base_url).netloc)


def _in_netrc(host: str) -> str | None:
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return found[2] if found else None


def segments(folder: Path, run_id: str) -> list[Path]:
    """The files of the offline segments of a run, oldest first."""
    return sorted(folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb"))


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
