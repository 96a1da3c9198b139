"""What the commands that tune have in common: their flags as values, and their progress."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fedbench.cli.flags import Flag, words
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.errors import ConfigError
from fedbench.results.progress import GridProgress
from fedbench.results.quantities import duration, plural

if TYPE_CHECKING:
    from fedbench.results.plan import Plan
    from fedbench.studies.contest import Contest

TUNING = (
    Flag("tune-seeds", "seeds on which points are tried, none of the final ones [default 90]", "SEED", many=True),
    Flag(
        "search",
        "how points are found: all of a grid, at random, or by Optuna from what is known [grid, random or optuna; "
        "default grid]",
        "KIND",
    ),
    Flag("samples", "points of each method's space that random or optuna tries [whole number >= 1]", "N"),
    Flag(
        "scheduler",
        "asha stops trials that fall behind at a ninth and a third of the rounds [asha or none; default none]",
        "NAME",
    ),
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


def side_by_side(what: str) -> Flag:
    """The flag for how many trials, or runs, are made at once; `read_count` reads it."""
    return Flag("trials", f"most {what} side by side [whole number >= 1 or auto; default auto: as many as fit]", "N")


def tuning_of(asked: Namespace, least: int = 1, **more: Any) -> dict[str, Any]:
    """What the flags of tuning say, by the keywords of the calls. least: that --tune may be. Raises ConfigError."""
    return given(
        search=asked.search,
        samples=read_count("samples", asked.samples),
        scheduler=asked.scheduler,
        tune=read_count("tune", asked.tune, least),
        tune_seeds=read_seeds(asked.tune_seeds),
        point=asked.point,
        final_val=asked.final_val and parse_value(asked.final_val),
        **more,
    )


def given(**keywords: Any) -> dict[str, Any]:
    """Those that have a value."""
    return {name: value for name, value in keywords.items() if value is not None}


MOST_NAMED = 5
"""Stopped trials that are named."""


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

    def update(self, outcomes: Mapping[str, Any], running: Mapping[str, float]) -> None:
        """What became of each job so far (`status` and `error`), and how far those are that run."""
        names = list(outcomes)
        if self._jobs and self._progress is not None and names[: len(self._jobs)] == self._jobs:
            self._jobs = names
            self._progress.grow(len(names))
        elif names != self._jobs:
            self._next(names)
        self.failed |= {name: str(found.error) for name, found in outcomes.items() if found.status == "failed"}
        failed = sum(found.status == "failed" for found in outcomes.values())
        done = sum(found.status != "missing" for found in outcomes.values())
        if self._progress is not None:
            self._progress.update(done, failed, running)

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
        self._progress.start(f"{stage}: {plural(len(jobs), 'run')}")
        if place:
            self._progress.warn(place)


def asides(plan: "Plan") -> Iterator[str]:
    """Lines about trials that failed or were stopped early, and points that were left out."""
    failed: dict[tuple[str, str], list[str]] = {}
    for entry in plan.failed():
        name = f"{entry.label} {entry.name} seed {entry.seed}"
        failed.setdefault((entry.label, entry.error or "no reason recorded"), []).append(name)
    for (_, error), names in failed.items():
        more = f" and {plural(len(names) - 1, 'more run')}" if len(names) > 1 else ""
        yield f"failed:  {names[0]}{more}: {error}"
    if stopped := plan.stopped():
        some = "; ".join(f"{entry.label} {entry.name} ({entry.error})" for entry in stopped[:MOST_NAMED])
        more = f"; and {len(stopped) - MOST_NAMED} more" if len(stopped) > MOST_NAMED else ""
        yield f"stopped: {len(stopped)} of {sum(e.role == 'candidate' for e in plan.entries)} trials: {some}{more}"
    yield from (f"left out: {label} {point}: {why}" for label, point, why in plan.refused)


def outlook(contests: Sequence["Contest"]) -> Iterator[str]:
    """Lines about a study before it is run: points, runs, and the time that they may take."""
    from fedbench.studies.cost import hours_of, steps_of

    for contest in contests:
        inside = f"{contest.setting}: " if contest.setting else ""
        for contender in contest.contenders:
            count = contender.tries
            keys = ", ".join(contest.points[contender.label][0]) or "its defaults"
            lent = contender.space.lent if contender.space else ""
            whose = f", the space of {lent}, from which it derives" if lent else ""
            yield f"{inside}{contender.label}: {plural(count, 'point')} of {keys}{whose}"
        yield from (f"{inside}left out: {label} {point}: {why}" for label, point, why in contest.plan.refused)
    runs = [config for contest in contests for config in contest.expected()]
    steps, hours = sum(map(steps_of, runs)), hours_of(runs)
    yield f"{plural(len(runs), 'run')}, {steps:.2g} gradient steps, about {duration(hours * 3600)}, a run on every core"


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
    values = [parse_value(word) for word in words(texts)]
    if not texts:
        return None
    try:
        return Config(seeds=values).seeds
    except ConfigError as error:
        raise ConfigError(f"--tune-{error}") from None


def read_values(flag: str, texts: list[str]) -> dict[str, list[Any]] | None:
    """`["method.tau=0.3,0.5"]` -> `{"method.tau": [0.3, 0.5]}`; None when there is none.

    A call such as `loguniform(1e-4, 1e-1)` is a distribution of Ray Tune.
    """
    from fedbench.studies.space import distribution

    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise ConfigError(
                f"--{flag} {text}: a key and its values are expected, for example --{flag} train.epochs=1,5"
            )
        if key in found:
            raise ConfigError(f"--{flag} {key}: given twice; name all its values at once, {key}=V1,V2")
        found[key] = distribution(values) or list(parse_value(values if values.startswith("[") else f"[{values}]"))
    return found or None


def read_space(texts: list[str]) -> dict[str, Any] | str | None:
    """`paper`, or values and distributions by key; None when not given. Raises ConfigError."""
    if "paper" not in texts:
        return read_values("space", texts)
    if len(texts) > 1:
        raise ConfigError("--space paper: is the whole space; leave the other --space out")
    return "paper"
