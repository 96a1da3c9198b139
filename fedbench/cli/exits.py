"""How a command ends: what it says of an error, and its exit code."""

import errno
import os
import re
import sys
import traceback
from pathlib import Path

from fedbench.errors import ConfigError, RunError, first_line
from fedbench.user_code import exit_text

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


class PrintedExit(SystemExit):
    """Exit after printing, for example after --help."""


def report_error(error: Exception | SystemExit, debug: bool) -> int:
    """Says in a line on stderr, or by a stack trace, what has ended a command; returns its exit code.

    debug: raises what is no mistake of the user, for a debugger.
    """
    match error:
        case PrintedExit():
            return OK
        case BrokenPipeError():  # for example `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        case RunError():
            if debug and error.__cause__ is not None:  # in this process
                raise error.__cause__ from None
            print(error.trace if debug else "", f"fedbench: error: {_shorten(error)}", sep="", file=sys.stderr)
            return FAILED
        case ConfigError():
            return _report_mistake(_shorten(error), debug)
        case SystemExit():  # a user's code exited, so the command has not finished
            return _report_mistake(exit_text(error), debug)
        case OSError(errno=errno.ENAMETOOLONG) if not debug:
            name = max(Path(str(error.filename)).parts, key=len)
            return _report_mistake(f"{_shorten(name)}: too long for the name of a file", debug)
    if debug:
        raise error
    if line := _remedy(error):
        print(f"fedbench: error: {line}", file=sys.stderr)
    else:
        traceback.print_exc()
    return FAILED


def _report_mistake(line: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"fedbench: error: {line}", file=sys.stderr)
    return MISTAKE


def _remedy(error: BaseException) -> str:
    """A line about an error for which the machine is to blame; nothing for others."""
    if isinstance(error, OSError):
        if error.errno == errno.ENOMEM:
            return _memory_line(error)
        return _storage_line(error) if error.errno in STORAGE else ""
    loader = isinstance(error, ImportError) and any(sign in str(error) for sign in NO_MEMORY)
    return _memory_line(error) if loader or isinstance(error, MemoryError) else ""


def _shorten(text: object) -> str:
    """Without the middle of words of hundreds of letters, which nobody reads."""
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda match: f"{match[0][:100]}...{match[0][-50:]}", str(text))


def _storage_line(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}; {STORAGE[error.errno or 0]}"


def _memory_line(error: BaseException) -> str:
    return (
        f"this process may not have the memory that it needs ({_shorten(first_line(error))}): raise its limit "
        f"(`ulimit -v`, or that of the job or container); PyTorch alone needs {LEAST_MEMORY} of address space"
    )
