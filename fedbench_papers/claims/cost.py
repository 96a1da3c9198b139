"""What a row costs, before it is run: its runs, those that rows share counted once."""

from collections.abc import Iterator

from fedbench.config import Config
from fedbench_papers.claims.rows import Row


def runs_of_row(row: Row) -> Iterator[tuple[Config, int]]:
    """What a row runs, as it is asked for: configuration and seed."""
    for method in row.arms:
        yield from method.runs(Config(), row.seeds)


def new_runs(row: Row, known: set[tuple[str, int]]) -> list[tuple[Config, int]]:
    """The runs that no earlier row has; they become known."""
    found = [(config, seed) for config, seed in runs_of_row(row) if (config.key(), seed) not in known]
    known |= {(config.key(), seed) for config, seed in found}
    return found
