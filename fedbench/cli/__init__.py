"""The commands: flags -> Config -> experiment, and nothing else."""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps

from fedbench.cli.lines import lines
from fedbench.errors import ConfigError, RunError
from fedbench.plugins import Table
from fedbench.user_code import told_exit

COMMANDS = {
    "run": "one run: one method, one data set, one partition, one or more seeds",
    "grid": "the grid of a method's tune space, then its best point over the seeds beside the baselines",
    "compare": "many methods under one protocol and one budget of tuning, with statistics",
    "data": "fetch or import a data set, check it, say what it holds",
    "report": "(re)make the page of a run, a grid or a comparison",
    "watch": "show the page of a run, a grid or a comparison live in a browser",
    "wandb": "send a study to W&B, with tables, page and a workspace; without an account, say what it would do",
    "methods": "list the methods; the options of one with default, range and source",
}
TABLE = Table("command", group="fedbench.commands", own={name: f"fedbench.cli.{name}:main" for name in COMMANDS})
STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG}
"""What is said of a file where the storage is at fault, not the code."""
OK, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130

Main = Callable[[list[str]], int]


class Printed(SystemExit):
    """Nothing was asked for but what has been printed, such as --help."""


def command(body: Main) -> Callable[[Sequence[str] | None], int]:
    """Makes a command's main: a user's mistake is one line on stderr; everything ends in an exit code."""

    @wraps(body)
    def main(argv: Sequence[str] | None = None) -> int:
        arguments = list(sys.argv[1:] if argv is None else argv)
        _import_from_here()
        debug = "--debug" in arguments
        try:
            with lines():
                return body(arguments)
        except RunError as error:
            if debug and error.__cause__ is not None:  # in this process: for a debugger as it was raised
                raise error.__cause__ from None
            print(error.trace if debug else "", f"fedbench: error: {error}", sep="", file=sys.stderr)
            return FAILED
        except ConfigError as error:
            if debug:
                traceback.print_exc()
            print(f"fedbench: error: {error}", file=sys.stderr)
            return MISTAKE
        except KeyboardInterrupt:
            print("fedbench: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except Printed:
            return OK
        except SystemExit as stop:  # of a user's code: nothing that was asked for is done
            if "--debug" in arguments:
                traceback.print_exc()
            print(f"fedbench: error: {told_exit(stop)}", file=sys.stderr)
            return MISTAKE
        except OSError as error:
            if debug or error.errno not in STORAGE:
                traceback.print_exc()
            else:
                print(f"fedbench: error: {_unwritten(error)}", file=sys.stderr)
            return FAILED
        except Exception:
            if debug:
                raise
            traceback.print_exc()
            return FAILED

    return main


def _unwritten(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror}; make room there, or let it be written to, then give the same command again: it "
        "goes on from the last checkpoint"
    )


def _import_from_here() -> None:
    """A user's module in the working directory can be imported, whatever script was started."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def line_of(name: str) -> str:
    """What a command does: of one of a package the first line of its docstring, or why it cannot be imported."""
    try:
        return COMMANDS.get(name) or (TABLE.load(name).__doc__ or "").partition("\n")[0]
    except ConfigError as error:
        return str(error)


def usage() -> str:
    """What `fedbench --help` prints."""
    lines = [f"  {name:<9} {line_of(name)}" for name in dict.fromkeys((*COMMANDS, *TABLE.names()))]
    first = "fedbench grid --method fedcac   tunes on the digits that come with scikit-learn, in a few minutes"
    return "\n".join(["usage: fedbench COMMAND ...", "", *lines, "", first, "fedbench COMMAND --help says more."])


@command
def main(argv: list[str]) -> int:
    """`fedbench COMMAND ...`."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return OK if argv else MISTAKE
    if argv[0] == "--version":
        from importlib.metadata import version

        print(f"fedbench {version('fedbench')}")
        return OK
    name, *rest = argv
    run: Main = TABLE.load(name)
    return run(rest)
