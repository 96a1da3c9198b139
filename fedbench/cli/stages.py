"""Flags and lines of the commands that tune."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag
from fedbench.cli.parse import decoded
from fedbench.config import Config
from fedbench.config.files import parse_value
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.installation import require

if TYPE_CHECKING:
    from fedbench.results.plan import Plan
    from fedbench.studies.study_result import StudyResult

SPACE = Flag(
    "space",
    "values of a key of method, train or model (an argument of the model's constructor) to try, or a distribution such "
    "as 'loguniform(1e-4, 1e-1)', instead of the tune spaces of all methods, or of one, METHOD:KEY=V1,V2; may be "
    "repeated; paper: the grids of the methods' papers",
    "KEY=V1,V2",
    many=True,
)


def side_by_side(what: str) -> Flag:
    """The flag for the number of parallel trials or runs; `read_count` reads it."""
    return Flag(
        "trials", f"maximum number of parallel {what} [whole number >= 1 or auto; default auto: as many as fit]", "N"
    )


def check_trials(config: Config, args: Namespace) -> None:
    """Raises ConfigError if libraries are not installed by which a study searches and runs. Imports none of them."""
    if args.tuning is not None and args.tuning.search == "optuna":
        require("tune", "use --search random")
    if config.resources.hosts != 0 or args.trials != "1":
        require("ray", "use --hosts 0 --trials 1")


def trial_remarks(plan: "Plan") -> Iterator[str]:
    """Lines about failed, stopped and repeated trials and candidates left out."""
    failed: dict[tuple[str, str], list[str]] = {}
    for entry in plan.failed():
        name = f"{entry.label} {entry.name} seed {entry.seed}"
        failed.setdefault((entry.label, entry.error or "no reason recorded"), []).append(name)
    for (_, error), names in failed.items():
        more = f" and {plural(len(names) - 1, 'more run')}" if len(names) > 1 else ""
        yield f"failed:  {names[0]}{more}: {error}"
    if note := plan.saved_note():
        yield f"stopped: {note}"
    yield from (f"left out: {line}" for line in plan.left_out())
    yield from (f"again:   {line}" for line in plan.gpu_notes())


def print_result(args: Namespace, lines: Sequence[str], result: "StudyResult", code: int = OK) -> int:
    """Prints the lines of a study and where it is; returns its exit code.

    The answer of a study in which nothing is left to do is kept until its results change.
    """
    from fedbench.results.plan import PLAN_FILE, Plan

    text = "\n".join([*lines, f"results: {result.folder}", f"report:  {result.report}"])
    print(text)
    if code == OK and (args.tuning is None or args.tuning.max_hours is None):
        folders = [path.parent for path in result.folder.rglob(PLAN_FILE)]
        jobs = [folder / entry.path for folder in folders for entry in Plan.read(folder).entries]
        args.question.keep(text, [result.folder, *dict.fromkeys(job.resolve() for job in jobs), *decoded()])
    return code


def read_count(flag: str, text: str | None) -> int | None:
    """Reads a count; None means as many as exist or fit."""
    if text is None or text == "auto":
        return None
    value = parse_value(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"--{flag} {text}: must be a whole number >= 1, or auto")
    return value


def read_number(flag: str, text: str | None) -> float | None:
    """Reads a number; None if not given."""
    if text is None:
        return None
    value = parse_value(text)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"--{flag} {text}: must be a number")
    return float(value)


def read_values(flag: str, texts: list[str]) -> dict[str, Any] | None:
    """`["method.tau=0.3,0.5"]` -> `{"method.tau": [0.3, 0.5]}`; None if there is none. Raises ConfigError."""
    from fedbench.studies.axis import Axis

    values = dict[str, Any]()
    for axis in (Axis.parse(text, flag) for text in texts):
        if axis.key in values:
            raise ConfigError(f"--{flag} {axis.key}: given twice; give all its values at once, {axis.key}=V1,V2")
        values[axis.key] = axis.values
    return values or None


def read_space(texts: list[str]) -> dict[str, Any] | str | None:
    """Reads `paper`, or values and distributions by key; None if not given. Raises ConfigError."""
    if "paper" not in texts:
        return read_values("space", texts)
    if len(texts) > 1:
        raise ConfigError("--space paper: is the whole space; remove the other --space")
    return "paper"
