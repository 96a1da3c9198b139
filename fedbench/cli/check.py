"""`fedbench check`: a method, a model and data prove themselves."""

import inspect
import json
import sys
from argparse import Namespace
from pathlib import Path

from fedbench.cli import command
from fedbench.cli.exits import FAILED, OK
from fedbench.cli.flags import Flag, split_words
from fedbench.cli.parse import parse
from fedbench.config import Config
from fedbench.errors import ConfigError

FLAGS = (
    Flag("json", "print the results as JSON"),
    Flag("numbers", "print what two clients receive, train and send on two parameters, to compare with the paper"),
    Flag("write", "print these numbers, and write them and all checks as a test of pytest", "FILE"),
    Flag("mutants", "break the class on purpose, change by change, and name the changes that no check notices"),
    Flag("tests", "with --mutants: also name the changes that no test of this file of pytest notices", "FILE"),
    Flag("only", "only the checks of these names", "NAME,...", many=True),
)
ABOUT = (
    "Checks a method (--method mine:Mine), a model (--model mine:Net) and data (--data X), alone or together: a table "
    "of what passed, failed, or does not apply, with a remedy. Ends with 1 if a check failed."
)


@command
def main(argv: list[str]) -> int:
    """Prints a line per check as it comes; returns a failure if one fails."""
    config, flags = parse(argv, FLAGS, "fedbench check", about=ABOUT, check=_require_subject)
    from fedbench.checks.check import CheckReport, row_of
    from fedbench.checks.suite import results_for, title_of

    if flags.numbers or flags.write:
        return print_numbers(config, flags.write)
    if flags.mutants:
        return print_mutants(config, flags.tests)
    subjects, results = subjects_of(config), []
    if not flags.json:
        print(title_of(config, subjects), flush=True)
    for result in results_for(config, subjects, tuple(split_words(flags.only or ()))):
        results.append(result)
        if not flags.json:
            print(row_of(result), flush=True)
    report = CheckReport(title_of(config, subjects), results)
    print(json.dumps(report.as_json(), indent=2) if flags.json else report.count)
    sys.stdout.flush()
    return FAILED if report.failed else OK


def print_numbers(config: Config, file: str | None) -> int:
    """Prints the numbers by hand of the method, and writes them as a test. Raises ConfigError."""
    from fedbench.checks import problem

    if "method" not in config.model_fields_set:
        raise ConfigError("check --numbers: name the method, for example --method mine:Mine")
    if file and Path(file).exists():
        raise ConfigError(f"check --write {file}: there is such a file; remove it, or name another one")
    print(inspect.cleandoc(problem.__doc__ or ""), end="\n\n")
    rows = problem.trajectory(config.method.name, config.method.options)
    print(problem.table_of(rows))
    if file:
        problem.write_test(Path(file), config.method.name, config.method.options, rows)
        print(f"written: {file}")
    return OK


def print_mutants(config: Config, tests: str | None) -> int:
    """Prints the changes of the method's code, and what notices each. Raises ConfigError."""
    from fedbench.checks.mutants import Breaking
    from fedbench.methods import load

    if "method" not in config.model_fields_set:
        raise ConfigError("check --mutants: name the method, for example --method mine:Mine")
    breaking, mutants = Breaking(load(config.method.name), config.method.options, Path(tests) if tests else None), []
    for change in breaking.changes():
        mutants.append(breaking.mutant(change))
        print(mutants[-1], flush=True)
    noticed = sum(bool(mutant.noticed_by) for mutant in mutants)
    by_tests = f", {sum(bool(mutant.test) for mutant in mutants)} by {tests}" if tests else ""
    print(f"{noticed} of {len(mutants)} changes are noticed{by_tests}; numbers by hand and REDUCES_TO notice more")
    return OK


def subjects_of(config: Config) -> tuple[str, ...]:
    """What the flags name: method, model and data."""
    return tuple(name for name in ("method", "model", "data") if name in config.model_fields_set)


def _require_subject(config: Config, flags: Namespace) -> None:
    if not subjects_of(config):
        raise ConfigError("check: name what is checked: --method mine:Mine, --model mine:Net or --data X")
    if flags.tests and not flags.mutants:
        raise ConfigError("check --tests: tests are tried on a broken class; add --mutants, or run pytest")
    if flags.tests and not Path(flags.tests).is_file():
        raise ConfigError(f"check --tests {flags.tests}: there is no such file; name a file of pytest")
