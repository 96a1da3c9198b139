"""The commands: flags -> Config -> study."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps

from fedbench.cli.exits import AGAIN, MISTAKE, OK, SIGNALLED, report_error
from fedbench.cli.lines import log_to_stderr
from fedbench.cli.signals import interruption
from fedbench.errors import ConfigError
from fedbench.installation import other_fedbench, version
from fedbench.plugins import PluginTable

COMMANDS = {
    "demo": "a first comparison, from nothing to a verdict: FedCAC and three baselines on digits, 5 to 15 minutes",
    "run": "run one method on one data set and partition, with one or more seeds",
    "grid": "search a method's tune space, then run its best candidate and the baselines over the seeds",
    "compare": "compare methods under one protocol and equal tuning budgets, with statistics",
    "data": "download or import a data set, check it and say how it is read",
    "report": "write the report of a run, grid or comparison again",
    "figure": "draw a figure of a study for a paper, as PDF, SVG or PNG",
    "table": "write a study's scores, hyperparameters, ablation, protocol or BibTeX for a paper",
    "watch": "show the report of a run, grid or comparison live in a browser",
    "export": "write a kept model as weights with a script, or as a program for torch alone or ONNX",
    "metrics": "compute any metric of kept predictions, without training",
    "wandb": "upload a study to W&B with tables, report and a workspace; without an account, show what it would upload",
    "check": "check a method, a model and data of your own: a table with remedies",
    "doctor": "check the installation and this machine, and say what to do",
    "methods": "list the methods, or one method's options with default, range and source",
    "completion": "print a script by which bash, zsh or fish completes commands, flags and names",
}
TABLE = PluginTable(
    "command", group="fedbench.commands", built_in={name: f"fedbench.cli.{name}:main" for name in COMMANDS}
)

Main = Callable[[list[str]], int]


def command(body: Main, continues: bool = False, usage: str = "") -> Callable[..., int]:
    """Wraps a command's main: reports a user's mistake in one line on stderr and always returns an exit code.

    continues: whether the same command continues what a signal has ended. usage: the text of --help of a command that
    takes no keys of the configuration; its body gets neither this flag nor --debug.
    """

    @wraps(body)
    def main(argv: Sequence[str] | None = None) -> int:
        arguments = list(sys.argv[1:] if argv is None else argv)
        _import_from_here()
        debug = "--debug" in arguments
        try:
            with log_to_stderr(), interruption() as signals:
                if usage and not {"-h", "--help"}.isdisjoint(arguments):
                    print(usage)
                    return OK
                return body([word for word in arguments if word != "--debug"] if usage else arguments)
        except KeyboardInterrupt:
            with suppress(OSError):  # the terminal may be closed
                print(f"fedbench: {signals.line}{f'; {AGAIN}' if continues else ''}", file=sys.stderr)
            return SIGNALLED + signals.number
        except (Exception, SystemExit) as error:
            return report_error(error, debug)

    return main


def _import_from_here() -> None:
    """Makes modules in the working directory importable from every script."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def line_of(name: str) -> str:
    """What a command does: of one of a package the first line of its docstring, or why it cannot be imported."""
    try:
        return COMMANDS.get(name) or (TABLE.load(name).__doc__ or "").partition("\n")[0]
    except ConfigError as error:
        return str(error)


def usage() -> str:
    """The text of `fedbench --help`."""
    names = dict.fromkeys((*COMMANDS, *TABLE.names()))
    width = max(map(len, names))
    lines = [f"  {name:<{width}} {line_of(name)}" for name in names]
    first = "fedbench demo   tunes and compares four methods on the digits of scikit-learn, and says which is better"
    return "\n".join(["usage: fedbench COMMAND ...", "", *lines, "", first, "See fedbench COMMAND --help."])


@command
def main(argv: list[str]) -> int:
    """`fedbench COMMAND ...`."""
    if line := other_fedbench():
        print(f"fedbench: warning: {line}", file=sys.stderr)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return OK if argv else MISTAKE
    if argv[0] == "--version":
        print(f"fedbench {version() or 'unknown: it is not installed'}")
        return OK
    name, *rest = argv
    run: Main = TABLE.load(name)
    return run(rest)
