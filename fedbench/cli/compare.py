"""`fedbench compare`: many methods under one protocol."""

from pathlib import Path
from typing import Any

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
from fedbench.cli.stages import PROTOCOL, Stages, read_count, read_protocol, read_seeds, read_values
from fedbench.errors import ConfigError
from fedbench.results.matrix import is_matrix

FLAGS = (
    Flag(
        "methods",
        "what is compared, beside local, centralized and fedavg-ft: NAME, a variant NAME:key=value,..., or "
        "package.module:Class",
        "NAME,...",
        many=True,
    ),
    Flag(
        "over",
        "values of a key of data, partition, public, model, train, rounds or participation; may be repeated: the "
        "comparison is made in every combination",
        "KEY=V1,V2",
        many=True,
    ),
    Flag("tune", "points tried of each method's space [whole number >= 0; default: the size of the smallest]", "N"),
    Flag("tune-seeds", "seeds on which points are tried, none of the final ones [default 90]", "SEED", many=True),
    *PROTOCOL,
    Flag("trials", "most trials side by side [whole number >= 1 or auto; default auto: as many as fit]", "N"),
)


@command
def main(argv: list[str]) -> int:
    """Runs or goes on with a comparison; prints its table, the answer, and where the results are."""
    config, asked = parse(argv, FLAGS, prog="fedbench compare")
    names = read_methods(asked.methods)
    wanted: dict[str, Any] = {
        "over": read_values("over", asked.over),
        "tune": read_count("tune", asked.tune, least=0),
        "tune_seeds": read_seeds(asked.tune_seeds),
        **read_protocol(asked),
        "at_once": read_count("trials", asked.trials),
    }
    from fedbench.studies.compare import compare

    stages = Stages(f"tuning on {config.data.name}", config)
    try:
        given = {key: value for key, value in wanted.items() if value is not None}
        result = compare(config, names, watch=stages.update, **given)
    finally:
        stages.stop()
    print(told(result.folder))
    for name, error in stages.failed.items():
        print(f"failed:  {name}: {error}")
    print(f"results: {result.folder}")
    print(f"report:  {result.report}")
    return OK


def told(folder: Path) -> str:
    """The table and the answer."""
    if is_matrix(folder):
        from fedbench.report import matrix

        survey = matrix.Survey.load(folder)
        return f"{matrix.as_text(survey)}\n{matrix.answer(survey)}"
    from fedbench.report.leaderboard import as_text, leaderboard
    from fedbench.report.study import Study
    from fedbench.report.verdicts import comparison_answer

    study = Study.load(folder)
    rows = leaderboard(study)
    return f"{as_text(rows, study.metric)}\n{comparison_answer(study, rows)}"


def read_methods(texts: list[str]) -> list[str]:
    """`["a,b:x=1,y=2,c"]` -> `["a", "b:x=1,y=2", "c"]`: a word with `=` and no colon goes on with a variant."""
    names: list[str] = []
    for word in (word for text in texts for word in text.split(",") if word):
        if "=" in word and ":" not in word.partition("=")[0]:
            if not names or "=" not in names[-1]:
                raise ConfigError(f"--methods {word}: belongs to no method; a variant is written NAME:key=value,...")
            names[-1] += f",{word}"
        else:
            names.append(word)
    if not names:
        raise ConfigError("--methods is missing: name what is to be compared, for example --methods fedper,fedcac")
    return names
