"""`fedbench grid`: a method's tune space, then its best point beside the baselines."""

from typing import Any

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag, yaml_value
from fedbench.cli.parse import parse
from fedbench.cli.stages import PROTOCOL, Stages, read_count, read_protocol, read_seeds, read_values

FLAGS = (
    Flag(
        "space",
        "tried values of a method.* or train.* key, instead of the method's tune space; may be repeated",
        "KEY=V1,V2",
        many=True,
    ),
    Flag("trials", "most trials side by side [whole number >= 1 or auto; default auto: as many as fit]", "N"),
    Flag("tune", "most points of each method's space [whole number >= 1; default: all of the method's]", "N"),
    Flag("tune-seeds", "seeds on which points are tried, none of the final ones [default 90]", "SEED", many=True),
    *PROTOCOL,
    Flag(
        "baselines", "methods beside the best point, or none [default local,centralized,fedavg-ft]", "NAME", many=True
    ),
)


@command
def main(argv: list[str]) -> int:
    """Runs or goes on with a grid; prints the final table, failed trials and where the results are."""
    config, asked = parse(argv, FLAGS, prog="fedbench grid")
    wanted: dict[str, Any] = {
        "space": read_values("space", asked.space),
        "at_once": read_count("trials", asked.trials),
        "tune": read_count("tune", asked.tune),
        "tune_seeds": read_seeds(asked.tune_seeds),
        **read_protocol(asked),
        "baselines": read_baselines(asked.baselines),
    }
    from fedbench.report.study import Study
    from fedbench.results.tables import as_text
    from fedbench.studies.grid import grid

    stages = Stages(f"grid of {config.method.name} on {config.data.name}", config)
    try:
        result = grid(config, watch=stages.update, **{key: value for key, value in wanted.items() if value is not None})
    finally:
        stages.stop()
    study = Study.load(result.folder)
    print(as_text(study.table, study.metric))
    print(f"best:    {', '.join(f'{key}={yaml_value(value)}' for key, value in result.best.items()) or 'the defaults'}")
    for name, error in stages.failed.items():
        print(f"failed:  {name}: {error}")
    print(f"results: {result.folder}")
    print(f"report:  {result.report}")
    return OK


def read_baselines(texts: list[str]) -> list[str] | None:
    """The methods to run beside the best point, `none` for none; None when not given. Raises ConfigError."""
    names = [name for text in texts for name in text.split(",") if name]
    if names == ["none"]:
        return []
    from fedbench.methods import load

    for name in names:
        load(name)
    return names or None
