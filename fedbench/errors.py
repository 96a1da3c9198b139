"""Exceptions for users' mistakes, and the line of user code that they come from."""

import dataclasses
import difflib
import inspect
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
TORCH = ("torch", "torchvision", "torchmetrics", "lightning", "lightning_fabric", "pytorch_lightning")
LIBRARIES = (*TORCH, "PIL", "numpy", "pandas", "pydantic", "ray", "safetensors", "scipy", "sklearn", "wandb")
"""Their frames, like Python's own, say nothing about a mistake in the calling code."""
CONTRACT = ("base", "class_check", "client", "contract", "messages", "server", "snapshots", "state", "stores")
"""Modules of fedbench.methods that every method is built on; if they raise, their caller is at fault."""


class ConfigError(ValueError):
    """A user's mistake, described for the reader: what, where, what is legal, what to do.

    One line, even if it includes another library's message. Within validators of pydantic it becomes a ValidationError,
    from which `config.words.refuse_values` takes it back.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


def open_decision(where: str, seen: str, readings: Mapping[str, str]) -> ConfigError:
    """The error of an open decision. seen: what the data show; readings: what each key reads them as, by the key.

    `data csv:a.csv: y stands beside x and z: a target (--data.label y) or a measurement (--data.label activity)?`
    """
    question = " or ".join(f"{reading} ({key})" for key, reading in readings.items())
    return ConfigError(f"{where}: {seen}: {question}?")


class RunError(ConfigError):
    """Ends a running run: code of a method or model fails, or training fails everywhere.

    place: file and line of that code; trace: the stack trace where it was raised, possibly in another process.
    """

    def __init__(self, text: str, place: str = "", trace: str = "") -> None:
        super().__init__(text, place, trace)
        self.text, self.place, self.trace = text, place, trace

    def __str__(self) -> str:
        text = one_line(self.text)
        return f"{text} ({self.place})" if self.place else text

    @classmethod
    def of(cls, error: BaseException) -> "RunError":
        """Wraps an exception of user code; adds the place to a RunError."""
        if isinstance(error, RunError):
            return cls(error.text, error.place or place_of(error), error.trace or trace_of(error))
        return cls(f"{type(error).__name__}: {first_line(error)}", place_of(error), trace_of(error))


@contextmanager
def as_config_error(what: str) -> Iterator[None]:
    """Turn any error into one line that says what fails, and where in its author's code. Raises ConfigError."""
    try:
        yield
    except RunError as error:
        raise ConfigError(str(RunError.of(error))) from error
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what}: {RunError.of(error)}") from error


def one_line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def place_of(error: BaseException) -> str:
    """`mine.py:12`: the line of user code that an exception comes from; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    nearest = max(map(_nearness, (frame.filename for frame in frames)), default=0)
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if _nearness(frame.filename) == nearest]
    return places[-1] if nearest > 1 else ""


def _nearness(filename: str) -> int:
    """How likely a file is the author's code: 3 a user's file, 2 a method or model here, 1 the rest of fedbench."""
    path = Path(filename)
    if path.is_relative_to(PACKAGE):
        return 2 if path.parent.name in ("methods", "models", "parts") and path.stem not in CONTRACT else 1
    if "site-packages" in path.parts:
        return 0 if path.parts[path.parts.index("site-packages") + 1] in LIBRARIES else 3
    return 0 if filename.startswith("<frozen") or path.is_relative_to(sysconfig.get_path("stdlib")) else 3


def place_of_code(code: Any) -> str:
    """`mine.py:12`: where a function or class is defined."""
    try:
        file, (_, line) = inspect.getsourcefile(inspect.unwrap(code)), inspect.getsourcelines(inspect.unwrap(code))
    except (OSError, TypeError):  # Python knows no lines of a notebook's classes
        return str(getattr(code, "__module__", ""))
    return f"{Path(file or '').name}:{line}"


def refuse_hidden_fields(kind: type, base: type) -> None:
    """Raises ConfigError if a class declares a field of the dataclass that it derives from again.

    Called before `kind` becomes a dataclass, as Python would complain of the order of fields, or say nothing.
    """
    declared = inspect.get_annotations(kind).keys() | vars(kind).keys()
    if hidden := [f.name for f in dataclasses.fields(base) if f.name in declared]:
        raise ConfigError(
            f"{kind.__qualname__}.{hidden[0]} hides the field {hidden[0]} of {base.__name__}, which fedbench "
            f"reads: give it another name ({place_of_code(kind)})"
        )


def trace_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def first_line(error: BaseException) -> str:
    """The first line of another library's message, or the exception's type if it has none."""
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) would end the whole command"
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Suggests the known names closest to `name`, or lists all if none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
