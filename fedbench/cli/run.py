"""`fedbench run`: one run."""

import sys
from argparse import Namespace
from collections.abc import Iterable
from functools import partial

from fedbench.cli import command
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
from fedbench.cli.stages import print_result
from fedbench.config import Config

FLAGS = (Flag("resume", "continue the run in the output folder; an error if there is none"),)


@partial(command, continues=True)
def main(argv: list[str]) -> int:
    """Runs the configuration; prints the final table and the paths of the results."""
    config, args = parse(argv, FLAGS, prog="fedbench run", preview=preview)
    from fedbench.report.scores import final_table_text, newcomers_text
    from fedbench.results.estimators import estimator
    from fedbench.results.newcomers import newcomer_table
    from fedbench.results.reader import Records
    from fedbench.results.remarks import with_label
    from fedbench.results.tables import FinalScores, final_table
    from fedbench.studies.run import run
    from fedbench.studies.stages import RunProgress

    watched = RunProgress(config)
    try:
        result = run(config, resume=args.resume, watch=watched.update, debug=args.debug)
    finally:
        watched.progress.stop()
    lines = list[str]()
    if not watched.begun:
        print(f"already finished: delete {result.folder} to run it again", file=sys.stderr)
        lines += map(with_label, Records(result.folder).warnings())
    label, metric = config.method.name, result.metric
    kinds = {label: estimator(result.config.model_dump(), metric)}
    outcomes = {label: Records(result.folder).outcomes()}
    scores = FinalScores.of(metric, {label: result.metrics}, {label: result.clients}, outcomes)
    lines.append(final_table_text(final_table(scores, kinds), metric))
    if later := newcomers_text(newcomer_table(metric, {label: result.newcomers}), metric):
        lines.append(f"\n{later}")
    if config.save_models:
        lines.append(f"models:  {result.models}")
    return print_result(args, lines, result)


def preview(config: Config, args: Namespace) -> tuple[Config, Iterable[str]]:
    """The output of --print-config for a run, and what it would say before its first round. Raises ConfigError."""
    from fedbench.studies.run import preview_run

    return config, preview_run(config, resume=args.resume)
