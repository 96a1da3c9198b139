"""The cost of a row before it runs: its runs, with shared ones counted once."""

from collections.abc import Iterator

from fedbench.config import Config
from fedbench_papers import TUNE_SEEDS
from fedbench_papers.claims.rows import Row


def runs_of_row(row: Row) -> Iterator[tuple[Config, int]]:
    """The runs of a row: configuration and seed."""
    for method in row.arms:
        yield from method.runs(Config(), row.seeds, TUNE_SEEDS)


def new_runs(row: Row, known: set[tuple[str, int]]) -> list[tuple[Config, int]]:
    """The runs that no earlier row has; adds them to the known ones."""
    found = [(config, seed) for config, seed in runs_of_row(row) if (config.key(), seed) not in known]
    known |= {(config.key(), seed) for config, seed in found}
    return found
