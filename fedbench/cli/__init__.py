"""The commands: flags -> Config -> study."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path

from fedbench.cli.lines import log_to_stderr
from fedbench.cli.signals import interruption
from fedbench.errors import ConfigError, RunError, first_line
from fedbench.installation import other_fedbench, version
from fedbench.plugins import PluginTable
from fedbench.user_code import exit_text

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
AGAIN = "repeat the command: it continues from the last checkpoint"
STORAGE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"free some space and {AGAIN}"),
    errno.EFBIG: f"raise the limit of a file's size (`ulimit -f`) and {AGAIN}",
    **dict.fromkeys((errno.EACCES, errno.EPERM), f"change its permissions and {AGAIN}"),
    errno.EROFS: f"make it writable and {AGAIN}",
    errno.EIO: f"look after the disk and {AGAIN}",
}
"""The remedies of OSErrors for which the storage is to blame, not the code."""
NO_MEMORY = ("failed to map segment", "annot allocate memory")
"""What the loader of libraries says where a process may not have more memory."""
LONGEST_WORD = 300
"""Letters from which on a word of an error, such as a path, is shortened."""
OK, FAILED, MISTAKE, SIGNALLED = 0, 1, 2, 128

LEAST_MEMORY = "4 GB"
"""What `fedbench methods` needs under `ulimit -v`, in whole GB."""

Main = Callable[[list[str]], int]


class PrintedExit(SystemExit):
    """Exit after printing, for example after --help."""


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
        except RunError as error:
            if debug and error.__cause__ is not None:  # in this process: as it was raised, for a debugger
                raise error.__cause__ from None
            print(error.trace if debug else "", f"fedbench: error: {_shorten(error)}", sep="", file=sys.stderr)
            return FAILED
        except ConfigError as error:
            if debug:
                traceback.print_exc()
            print(f"fedbench: error: {_shorten(error)}", file=sys.stderr)
            return MISTAKE
        except KeyboardInterrupt:
            with suppress(OSError):  # the terminal may be closed
                print(f"fedbench: {signals.line}{f'; {AGAIN}' if continues else ''}", file=sys.stderr)
            return SIGNALLED + signals.number
        except BrokenPipeError:  # for example `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except PrintedExit:
            return OK
        except SystemExit as stop:  # a user's code exited, so the command has not finished
            if debug:
                traceback.print_exc()
            print(f"fedbench: error: {exit_text(stop)}", file=sys.stderr)
            return MISTAKE
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG and not debug:
                name = max(Path(str(error.filename)).parts, key=len)
                print(f"fedbench: error: {_shorten(name)}: too long for the name of a file", file=sys.stderr)
                return MISTAKE
            if error.errno == errno.ENOMEM and not debug:
                print(f"fedbench: error: {_memory_line(error)}", file=sys.stderr)
            elif debug or error.errno not in STORAGE:
                traceback.print_exc()
            else:
                print(f"fedbench: error: {_storage_line(error)}", file=sys.stderr)
            return FAILED
        except (ImportError, MemoryError) as error:
            if debug or not (isinstance(error, MemoryError) or any(sign in str(error) for sign in NO_MEMORY)):
                traceback.print_exc()
            else:
                print(f"fedbench: error: {_memory_line(error)}", file=sys.stderr)
            return FAILED
        except Exception:
            if debug:
                raise
            traceback.print_exc()
            return FAILED

    return main


def _shorten(text: object) -> str:
    """Without the middle of words of hundreds of letters, which nobody reads."""
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda match: f"{match[0][:100]}...{match[0][-50:]}", str(text))


def _storage_line(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; {STORAGE[error.errno or 0]}"


def _memory_line(error: Exception) -> str:
    return (
        f"this process may not have the memory that it needs ({_shorten(first_line(error))}): raise its limit "
        f"(`ulimit -v`, or that of the job or container); PyTorch alone needs {LEAST_MEMORY} of address space"
    )


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
