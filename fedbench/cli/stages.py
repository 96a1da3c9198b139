"""What the commands that tune have in common: their flags as values, and their progress."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from fedbench.cli.flags import Flag
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.errors import ConfigError
from fedbench.results.progress import GridProgress

PROTOCOL = (
    Flag(
        "point",
        "evaluation point by which points are chosen, and which the answer is about [after_agg or after_fit; default "
        "after_agg]",
        "NAME",
    ),
    Flag(
        "final-val",
        "share of training images that final runs hold out, 0 to train on all [number in [0, 1); default data.val]",
        "SHARE",
    ),
)


def read_protocol(asked: Namespace) -> dict[str, Any]:
    """What these flags say; None where they are not given."""
    return {"point": asked.point, "final_val": asked.final_val and parse_value(asked.final_val)}


class Stages:
    """The progress of both stages: trials of points, then the final runs. config: says on which machines."""

    def __init__(self, what: str, config: Config) -> None:
        self.what, self.config = what, config
        self.failed: dict[str, str] = {}
        self._jobs: list[str] = []
        self._progress: GridProgress | None = None

    def begin(self, what: str) -> None:
        """Another study, whose first stage is called so."""
        self.stop()
        self.what, self._jobs = what, []

    def update(self, outcomes: Mapping[str, Any], running: Sequence[str]) -> None:
        """What became of each job so far (`status` and `error`), and the names of those that run."""
        if list(outcomes) != self._jobs:
            self._next(list(outcomes))
        self.failed |= {name: str(found.error) for name, found in outcomes.items() if found.status == "failed"}
        failed = sum(found.status == "failed" for found in outcomes.values())
        done = failed + sum(found.status == "done" for found in outcomes.values())
        if self._progress is not None:
            self._progress.update(done, failed, running, None)

    def stop(self) -> None:
        """Ends the display."""
        if self._progress is not None:
            self._progress.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Without the display: Tune writes whoever watches its trials to disk, and a terminal cannot be written."""
        return {**vars(self), "_progress": None}

    def _next(self, jobs: list[str]) -> None:
        from fedbench.studies.execute import where

        self.stop()
        stage = "final runs over the seeds" if self._jobs else self.what
        place = None if self._jobs else where(self.config)
        self._jobs, self._progress = jobs, GridProgress(len(jobs), Console(stderr=True))
        self._progress.start(f"{stage}: {len(jobs)} runs")
        if place:
            self._progress.warn(place)


def read_count(flag: str, text: str | None, least: int = 1) -> int | None:
    """A count; None: as many as there are, or fit."""
    if text is None or text == "auto":
        return None
    value = parse_value(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"--{flag} {text}: must be a whole number >= {least}, or auto")
    return value


def read_seeds(texts: list[str]) -> list[int] | None:
    """`0 1 2` or `0,1,2`; None when not given."""
    values = [parse_value(word) for text in texts for word in text.split(",") if word]
    if not texts:
        return None
    try:
        return Config(seeds=values).seeds
    except ConfigError as error:
        raise ConfigError(f"--tune-{error}") from None


def read_values(flag: str, texts: list[str]) -> dict[str, list[Any]] | None:
    """`["method.tau=0.3,0.5"]` -> `{"method.tau": [0.3, 0.5]}`; None when there is none."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise ConfigError(
                f"--{flag} {text}: a key and its values are expected, for example --{flag} train.epochs=1,5"
            )
        if key in found:
            raise ConfigError(f"--{flag} {key}: given twice; name all its values at once, {key}=V1,V2")
        found[key] = list(parse_value(values if values.startswith("[") else f"[{values}]"))
    return found or None
