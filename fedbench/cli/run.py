"""`fedbench run`: one run."""

import sys
from typing import Any

from rich.console import Console

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
from fedbench.config import Config
from fedbench.results.progress import Progress

FLAGS = (Flag("resume", "continue the run in the output folder; an error if there is none"),)


@command
def main(argv: list[str]) -> int:
    """Runs the configuration; prints the final table and the paths of the results."""
    config, asked = parse(argv, FLAGS, prog="fedbench run")
    from fedbench.report.scores import final_table_text
    from fedbench.results.estimators import estimator
    from fedbench.results.tables import FinalScores, final_table
    from fedbench.studies.run import run

    watched = Watched(config)
    try:
        result = run(config, resume=asked.resume, watch=watched.update, debug=asked.debug)
    finally:
        watched.progress.stop()
    if not watched.begun:
        print(f"already finished: delete {result.folder} to run it again", file=sys.stderr)
    label, metric = config.method.name, result.metric
    kinds = {label: estimator(result.config.model_dump(), metric)}
    scores = FinalScores.of(metric, {label: result.metrics}, {label: result.clients})
    print(final_table_text(final_table(scores, kinds), metric))
    for line in result.summary.get("warnings", []):
        print(f"warning: {line}")
    print(f"results: {result.folder}")
    if config.save_models:
        print(f"models:  {result.models}")
    print(f"report:  {result.report}")
    return OK


class Watched:
    """The progress of a run, shown from its first event on, so that an invalid configuration prints one line only."""

    def __init__(self, config: Config) -> None:
        self.config, self.progress, self.begun = config, Progress(Console(stderr=True)), False

    def update(self, event: dict[str, Any]) -> None:
        if not self.begun:
            self.progress.start(title(self.config), self.config.rounds, self.config.seeds)
            self.begun = True
        self.progress.update(event)


def title(config: Config) -> str:
    """Describes the run in one line; if hosts is auto, the run reports them."""
    from fedbench.data.partitions.scheme import clients_by_data

    partition, hosts = config.partition, config.resources.hosts
    where = "" if hosts == "auto" else ", in this process" if hosts == 0 else f", {hosts} hosts"
    seeds = f"{len(config.seeds)} seeds" if len(config.seeds) > 1 else f"seed {config.seeds[0]}"
    clients = "the clients of the data" if clients_by_data(partition) else f"{partition.clients} clients"
    what = f"{config.method.name} on {config.data.name}, {partition.name} over {clients}"
    return f"{what}: {config.rounds} rounds, {seeds}{where}"
