"""What a row costs, before it is run: its runs, those that rows share counted once."""

from collections.abc import Iterable

from fedbench.config import Config
from fedbench.studies.claims.rows import Row
from fedbench.studies.contenders import TUNE_SEEDS


def runs_of(row: Row) -> Iterable[tuple[Config, int]]:
    """What a row runs, as it is asked for: configuration and seed; a tuned arm's final runs at its first point."""
    for contender in row.arms:
        for values in contender.points if len(contender.points) > 1 else ():
            yield from ((contender.config(Config(), {**values, **contender.trial}), seed) for seed in TUNE_SEEDS)
        yield from ((contender.config(Config(), contender.points[0]), seed) for seed in contender.seeds or row.seeds)


def new_runs(row: Row, known: set[tuple[str, int]]) -> list[tuple[Config, int]]:
    """The runs that no earlier row has; they become known."""
    found = [(config, seed) for config, seed in runs_of(row) if (config.key(), seed) not in known]
    known |= {(config.key(), seed) for config, seed in found}
    return found
