"""`fedbench grid`: a method's tune space, then its best point beside the baselines."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag, yaml_value
from fedbench.cli.parse import parse
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.errors import ConfigError
from fedbench.results.progress import GridProgress

FLAGS = (
    Flag(
        "space",
        "tried values of a method.* or train.* key, instead of the method's tune space; may be repeated",
        "KEY=V1,V2",
        many=True,
    ),
    Flag("trials", "most trials side by side [whole number >= 1 or auto; default auto: as many as fit]", "N"),
    Flag("final-seeds", "seeds of the final runs [whole numbers; default 0 1 2]", "SEED", many=True),
    Flag(
        "baselines", "methods beside the best point, or none [default local,centralized,fedavg-ft]", "NAME", many=True
    ),
)


@command
def main(argv: list[str]) -> int:
    """Runs or goes on with a grid; prints the final table, failed trials and where the results are."""
    config, asked = parse(argv, FLAGS, prog="fedbench grid")
    wanted: dict[str, Any] = {
        "space": read_space(asked.space),
        "at_once": read_trials(asked.trials),
        "final_seeds": read_seeds(asked.final_seeds),
        "baselines": read_baselines(asked.baselines),
    }
    from fedbench.report.study import Study
    from fedbench.results.tables import as_text
    from fedbench.studies.grid import grid

    stages = Stages(f"{config.method.name} on {config.data.name}")
    try:
        result = grid(config, watch=stages.update, **{key: value for key, value in wanted.items() if value is not None})
    finally:
        stages.stop()
    study = Study.load(result.folder)
    print(as_text(study.table, study.metric))
    print(f"best:    {', '.join(f'{key}={yaml_value(value)}' for key, value in result.best.items()) or 'the defaults'}")
    for name, error in stages.failed.items():
        print(f"failed:  {name}: {error}")
    print(f"results: {result.folder}")
    print(f"report:  {result.report}")
    return OK


class Stages:
    """The progress of a grid's two stages: its trials, then the final runs."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.failed: dict[str, str] = {}
        self._jobs: list[str] = []
        self._progress: GridProgress | None = None

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
        self.stop()
        stage = "final runs over the seeds" if self._jobs else f"grid of {self.what}"
        self._jobs, self._progress = jobs, GridProgress(len(jobs), Console(stderr=True))
        self._progress.start(f"{stage}: {len(jobs)} runs")


def read_space(texts: list[str]) -> dict[str, list[Any]] | None:
    """`["method.tau=0.3,0.5"]` -> `{"method.tau": [0.3, 0.5]}`; None when there is none."""
    space: dict[str, list[Any]] = {}
    for key, values in map(_dimension, texts):
        if key in space:
            raise ConfigError(f"--space {key}: given twice; name all its values at once, {key}=V1,V2")
        space[key] = values
    return space or None


def _dimension(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    if not (key and equals and values):
        raise ConfigError(f"--space {text}: a key and its values are expected, for example --space method.tau=0.3,0.5")
    read = parse_value(values if values.startswith("[") else f"[{values}]")
    return key, list(read)


def read_trials(text: str | None) -> int | None:
    """A count of trials; None: as many as fit."""
    if text is None or text == "auto":
        return None
    value = parse_value(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"--trials {text}: must be a whole number >= 1 or auto")
    return value


def read_seeds(texts: list[str]) -> list[int] | None:
    """`0 1 2` or `0,1,2`; None when not given."""
    values = [parse_value(word) for text in texts for word in text.split(",") if word]
    if not texts:
        return None
    try:
        return Config(seeds=values).seeds
    except ConfigError as error:
        raise ConfigError(f"--final-{error}") from None


def read_baselines(texts: list[str]) -> list[str] | None:
    """The methods to run beside the best point, `none` for none; None when not given. Raises ConfigError."""
    names = [name for text in texts for name in text.split(",") if name]
    if names == ["none"]:
        return []
    from fedbench.methods import load

    for name in names:
        load(name)
    return names or None
