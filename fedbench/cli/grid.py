"""`fedbench grid`: a method's tune space, then its best point beside the baselines."""

from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from fedbench.cli import FAILED, OK, command
from fedbench.cli.flags import Flag, words, yaml_value
from fedbench.cli.parse import parse
from fedbench.cli.stages import TUNING, Stages, asides, given, outlook, read_count, read_space, side_by_side, tuning_of
from fedbench.config import Config

FLAGS = (
    Flag(
        "space",
        "tried values of a method.* or train.* key, or a distribution such as 'loguniform(1e-4, 1e-1)', instead of the "
        "method's tune space; may be repeated; or paper: the grid of the method's paper",
        "KEY=V1,V2",
        many=True,
    ),
    side_by_side("trials"),
    Flag("tune", "most points of each method's space [whole number >= 1; default: all of the method's]", "N"),
    *TUNING,
    Flag(
        "baselines", "methods beside the best point, or none [default local,centralized,fedavg-ft]", "NAME", many=True
    ),
)


@command
def main(argv: list[str]) -> int:
    """Runs or goes on with a grid; prints the final table, what failed or was stopped, and where the results are."""
    config, asked = parse(argv, FLAGS, prog="fedbench grid", preview=preview)
    from fedbench.report.scores import as_text
    from fedbench.report.study import Study
    from fedbench.studies.grid import grid

    stages = Stages(f"grid of {config.method.name} on {config.data.name}", config)
    try:
        room = given(at_once=read_count("trials", asked.trials))
        result = grid(config, watch=stages.update, **study_of(asked), **tuning_of(asked), **room)
    finally:
        stages.stop()
    study = Study.load(result.folder)
    print(as_text(study.table, study.metric))
    print(f"best:    {', '.join(f'{key}={yaml_value(value)}' for key, value in result.best.items()) or 'the defaults'}")
    for line in asides(study.plan):
        print(line)
    print(f"results: {result.folder}")
    print(f"report:  {result.report}")
    return FAILED if study.failures else OK


def preview(config: Config, asked: Namespace) -> tuple[Config, Iterable[str]]:
    """What --print-config shows of the grid. Raises ConfigError."""
    from fedbench.studies.grid import contest_of
    from fedbench.studies.tuning import Tuning, asked_with_seeds

    return asked_with_seeds(config), outlook([contest_of(config, Tuning.named(**tuning_of(asked)), **study_of(asked))])


def study_of(asked: Namespace) -> dict[str, Any]:
    """The flags that a grid alone has."""
    return given(space=read_space(asked.space), baselines=read_baselines(asked.baselines))


def read_baselines(texts: list[str]) -> list[str] | None:
    """The methods to run beside the best point, `none` for none; None when not given. Raises ConfigError."""
    names = words(texts)
    if names == ["none"]:
        return []
    from fedbench.methods import load

    for name in names:
        load(name)
    return names or None
