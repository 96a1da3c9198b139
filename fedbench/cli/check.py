"""`fedbench check`: a method, a model and data prove themselves."""

import json
import sys
from argparse import Namespace

from fedbench.cli import FAILED, OK, command
from fedbench.cli.flags import Flag
from fedbench.cli.parse import parse
from fedbench.config import Config
from fedbench.errors import ConfigError

FLAGS = (
    Flag("json", "print the results as JSON"),
    Flag("only", "only the checks of these names", "NAMES", many=True),
)
ABOUT = (
    "Checks a method (--method mine:Mine), a model (--model mine:Net) and data (--data X), alone or together: a table "
    "of what passed, failed, or does not apply, with a remedy. Ends with 1 if a check failed."
)


@command
def main(argv: list[str]) -> int:
    """Prints a line per check as it comes; returns a failure if one fails."""
    config, asked = parse(argv, FLAGS, "fedbench check", about=ABOUT, check=_require_subject)
    from fedbench.checks.check import CheckReport, row_of
    from fedbench.checks.suite import results_for, title_of

    subjects, results = subjects_of(config), []
    if not asked.json:
        print(title_of(config, subjects), flush=True)
    for result in results_for(config, subjects, tuple(asked.only or ())):
        results.append(result)
        if not asked.json:
            print(row_of(result), flush=True)
    report = CheckReport(title_of(config, subjects), results)
    print(json.dumps(report.as_json(), indent=2) if asked.json else report.count)
    sys.stdout.flush()
    return FAILED if report.failed else OK


def subjects_of(config: Config) -> tuple[str, ...]:
    """What the flags name: method, model and data."""
    return tuple(name for name in ("method", "model", "data") if name in config.model_fields_set)


def _require_subject(config: Config, asked: Namespace) -> None:
    if not subjects_of(config):
        raise ConfigError("check: name what is checked: --method mine:Mine, --model mine:Net or --data X")
