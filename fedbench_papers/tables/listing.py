"""Lists the published experiments with their data and their cost on this machine."""

import textwrap
from collections.abc import Iterator

from fedbench.config import Config
from fedbench.config.keys import nest
from fedbench.studies.cost import hours_of, steps_of
from fedbench_papers import TUNE_SEEDS
from fedbench_papers.tables.experiment import Experiment, figures, names


def experiments_listing(scale: str) -> Iterator[str]:
    """Lines per experiment with cost and description; hours are estimated from a step measured here."""
    yield f"{'experiment':<33} {'cells':>5} {'numbers':>7} {'runs':>5} {'steps':>11} {'hours':>8}  data"
    for name in (*names(), *figures()):
        experiment = Experiment.load(name)
        configs = runs_of_cells(experiment, scale)
        sets = ", ".join(dict.fromkeys(cell.dataset for cell in experiment.cells))
        if configs:
            counts = f"{len(experiment.cells):>5} {len(experiment.numbers):>7} {len(configs):>5}"
            yield f"{name:<33} {counts} {sum(map(steps_of, configs)):>11,} {hours_of(configs):>8.1f}  {sets}"
        else:
            yield f"{name:<33} no runs"
        yield from textwrap.wrap(experiment.what, 110, initial_indent="    ", subsequent_indent="    ")
    yield f"runs: tuning and final ones at scale {scale}; hours: a run on every core"


def runs_of_cells(experiment: Experiment, scale: str) -> list[Config]:
    """The runs of all cells, shared ones once."""
    found: dict[tuple[str, int], Config] = {}
    for cell in experiment.cells:
        asked = Config(**nest(experiment.values(cell, scale)))
        for method in experiment.compared_methods(cell, scale):
            found |= {(config.key(), seed): config for config, seed in method.runs(asked, asked.seeds, TUNE_SEEDS)}
    return list(found.values())
