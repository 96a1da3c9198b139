"""`fedbench compare`: compares methods under one protocol."""

import logging
from argparse import Namespace
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.cli import command
from fedbench.cli.exits import FAILED, OK
from fedbench.cli.flags import Flag, split_words
from fedbench.cli.parse import parse
from fedbench.cli.stages import (
    SPACE,
    check_trials,
    print_result,
    read_count,
    read_space,
    read_values,
    side_by_side,
    trial_remarks,
)
from fedbench.config import Config
from fedbench.config.tuning import ComparisonTuning
from fedbench.errors import ConfigError
from fedbench.methods import split_names

if TYPE_CHECKING:
    from fedbench.results.plan import Plan

FLAGS = (
    Flag(
        "methods",
        "methods to compare besides local, centralized and fedavg-ft: NAME, a variant NAME:key=value,..., or "
        "package.module:Class",
        "NAME,...",
        many=True,
    ),
    Flag(
        "over",
        "values of a key of data, partition, public, model, train, rounds, participation, dropout, stragglers, attack, "
        "compression, privacy or aggregator, or of an option (method.KEY) of one or all of the methods; may be "
        "repeated: one comparison for each combination",
        "KEY=V1,V2",
        many=True,
    ),
    SPACE,
    side_by_side("trials"),
)
TUNING = ComparisonTuning


@partial(command, continues=True)
def main(argv: list[str]) -> int:
    """Runs or continues a comparison; prints its table, the answer and the paths of the results."""
    config, args = parse(argv, FLAGS, prog="fedbench compare", preview=preview, check=check_trials, tuning=TUNING)
    names = read_methods(args.methods)
    config, note = without_preset_method(config, args, names)
    if note:
        logging.getLogger("fedbench").warning(note)
    from fedbench.studies.compare import compare
    from fedbench.studies.stages import Stages

    stages = Stages(f"comparison on {config.data.name}", config)
    try:
        trials, options = read_count("trials", args.trials), compare_options(args) | dict(args.tuning)
        result = compare(config, names, trials=trials, watch=stages.update, **options)
    finally:
        stages.stop()
    text, code = outcome(result.folder)
    remarks = [line for plan in plans(result.folder) for line in trial_remarks(plan)]
    return print_result(args, [text, *remarks], result, code)


def preview(config: Config, args: Namespace) -> tuple[Config, Iterable[str]]:
    """The output of --print-config for a comparison. Raises ConfigError."""
    from fedbench.results.contrasts import too_few
    from fedbench.results.remarks import with_label
    from fedbench.studies.compare import plan_comparisons
    from fedbench.studies.run_studies import preview_studies

    tuning, names = args.tuning, read_methods(args.methods)
    config, note = without_preset_method(config, args, names)
    studies, _, _ = plan_comparisons(config, names, tuning, **compare_options(args))
    few = None if tuning.stopping_rule else too_few(len(studies[0].config.seeds))
    lines = preview_studies(studies, read_count("trials", args.trials), tuning.max_hours)
    notes = [*([note] if note else []), *([with_label(few)] if few else [])]
    return tuning.with_final_seeds(config), [*notes, *lines]


def without_preset_method(config: Config, args: Namespace, names: list[str]) -> tuple[Config, str | None]:
    """The configuration without the method of a preset, if it is not compared, and a line about it."""
    from fedbench.studies.compare import without_method

    if args.preset is None or any(key.startswith("method.") for key in args.given):
        return config, None
    return without_method(config, names)


def compare_options(args: Namespace) -> dict[str, Any]:
    """The flags that only compare has."""
    return dict(over=read_values("over", args.over), space=read_space(args.space))


def plans(folder: Path) -> "list[Plan]":
    """The plan of a comparison, or the plans of its settings."""
    from fedbench.results.plan import Plan
    from fedbench.results.settings_file import SettingsFile, is_matrix

    if is_matrix(folder):
        return [Plan.read(folder / setting.path) for setting in SettingsFile.read(folder).settings]
    return [Plan.read(folder)]


def outcome(folder: Path) -> tuple[str, int]:
    """The table and the answer, and an exit code: whether every method has a score."""
    from fedbench.report.answer import answer
    from fedbench.report.boards import boards_text
    from fedbench.report.footer import settings_doubts
    from fedbench.report.notes import notes
    from fedbench.report.settings_study import SettingsStudy
    from fedbench.results.remarks import with_label

    survey = SettingsStudy.load(folder)
    doubts = settings_doubts(survey) if survey.has_settings else []
    text = "\n".join([boards_text(survey), answer(survey), *notes(survey), *map(with_label, doubts)])
    missing = len(survey.studies) < len(survey.file.settings)
    return text, FAILED if missing or any(study.failures for study in survey.studies.values()) else OK


def read_methods(texts: list[str]) -> list[str]:
    """The methods and variants of the flag. Raises ConfigError."""
    names = split_names(split_words(texts))
    if not names:
        raise ConfigError("--methods is missing: name the methods to compare, for example --methods fedper,fedcac")
    return names
