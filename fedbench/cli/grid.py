"""`fedbench grid`: searches a method's tune space, then runs its best candidate and the baselines."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from fedbench.cli import command
from fedbench.cli.exits import FAILED, OK
from fedbench.cli.flags import Flag, split_words, yaml_value
from fedbench.cli.parse import parse
from fedbench.cli.stages import (
    SPACE,
    check_trials,
    print_result,
    read_count,
    read_space,
    side_by_side,
    trial_remarks,
)
from fedbench.config import Config
from fedbench.config.tuning import Tuning

FLAGS = (
    SPACE,
    side_by_side("trials"),
    Flag("baselines", "baselines to run, or none [default local,centralized,fedavg-ft]", "NAME", many=True),
)
TUNING = Tuning


@partial(command, continues=True)
def main(argv: list[str]) -> int:
    """Runs or continues a grid; prints the final table, failed and stopped trials, and the paths of the results."""
    config, args = parse(argv, FLAGS, prog="fedbench grid", preview=preview, check=check_trials, tuning=TUNING)
    from fedbench.report.answer import answer
    from fedbench.report.boards import boards_text
    from fedbench.report.notes import notes
    from fedbench.report.scores import final_table_text, newcomers_text
    from fedbench.report.settings_study import SettingsStudy
    from fedbench.results.remarks import beside_row
    from fedbench.studies.grid import grid
    from fedbench.studies.stages import Stages

    stages = Stages(f"grid of {config.method.name} on {config.data.name}", config)
    try:
        trials = read_count("trials", args.trials)
        result = grid(config, trials=trials, watch=stages.update, **grid_options(args), **dict(args.tuning))
    finally:
        stages.stop()
    survey = SettingsStudy.load(result.folder)
    study = survey.first_study
    doubts = {label: beside_row(summary["doubts"]) for label, summary in study.summaries.items()}
    if study.sequential_test is not None:
        lines = [boards_text(survey)]
    else:
        later = newcomers_text(study.newcomers, study.metric)
        lines = [final_table_text(study.table, study.metric, doubts), *([f"\n{later}\n"] if later else [])]
    best = ", ".join(f"{key}={yaml_value(value)}" for key, value in result.best.items()) or "the defaults"
    lines += [answer(survey), *notes(survey), f"best candidate of {study.method}: {best}", *trial_remarks(study.plan)]
    return print_result(args, lines, result, FAILED if study.failures else OK)


def preview(config: Config, args: Namespace) -> tuple[Config, Iterable[str]]:
    """The output of --print-config for a grid. Raises ConfigError."""
    from fedbench.studies.grid import plan_grid
    from fedbench.studies.run_studies import preview_studies

    studies = [plan_grid(config, args.tuning, **grid_options(args))]
    lines = preview_studies(studies, read_count("trials", args.trials), args.tuning.max_hours)
    return args.tuning.with_final_seeds(config), lines


def grid_options(args: Namespace) -> dict[str, Any]:
    """The flags that only grid has."""
    return dict(space=read_space(args.space), baselines=read_baselines(args.baselines))


def read_baselines(texts: list[str]) -> Sequence[str]:
    """Reads the baselines; `none` means none. Raises ConfigError."""
    from fedbench.methods import load
    from fedbench.studies.compared_methods import BASELINES

    names = split_words(texts)
    if names == ["none"]:
        return ()
    for name in names:
        load(name)
    return names or BASELINES
