"""Writes into docs/api.md what its directives name: each class, function and method with signature and first line.

    python docs/make_api.py

The page can then be read where no site is built of it. A list stands in every section before its first directive.
"""

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import fedbench

PAGE = Path(__file__).parent / "api.md"
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
LIST = re.compile(r"^ *- `.*\n\n?", re.MULTILINE)
SHORT = (bool, int, float, str, type(None))
"""Types of defaults that are shown; others, and parameters without a short one, as `...`."""


def with_lists(page: str) -> str:
    """The page with a list at the head of every section; lists that it has are replaced."""
    head, *sections = re.split(r"^(?=## )", LIST.sub("", page), flags=re.MULTILINE)
    return head + "".join(map(_with_list, sections))


def _with_list(section: str) -> str:
    names = DIRECTIVE.findall(section)
    lines = [line for name in names for line in entries(*_found(name))]
    place = section.index(":::")
    return f"{section[:place]}{chr(10).join(lines)}\n\n{section[place:]}"


def _found(path: str) -> tuple[str, Any]:
    """The name by which users import an object, and the object. path: where it is defined."""
    module, _, name = path.rpartition(".")
    thing = getattr(import_module(module), name)
    return (f"fedbench.{name}" if getattr(fedbench, name, None) is thing else path), thing


def entries(name: str, thing: Any) -> Iterator[str]:
    """The lines of a function, or of a class and what it defines itself."""
    yield f"- `{name}{signature(thing)}`: {first_line(thing)}"
    if not inspect.isclass(thing):
        return
    for own, part in vars(thing).items():
        part = getattr(part, "__func__", part)  # of a class method
        if own.startswith("_") or not getattr(part, "__doc__", None):
            continue
        if inspect.isfunction(part):
            yield f"    - `{own}{signature(part)}`: {first_line(part)}"
        elif isinstance(part, property | cached_property):
            yield f"    - `{own}`: {first_line(part)}"


def signature(thing: Any) -> str:
    """The names of the parameters, with defaults that are short; without types, and without `self`."""
    shown = []
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return ""
    for number, given in enumerate(parameters):
        if number == 0 and given.name in ("self", "cls"):
            continue
        if given.kind is given.KEYWORD_ONLY and "*" not in shown and not any(word.startswith("*") for word in shown):
            shown.append("*")
        stars = {given.VAR_POSITIONAL: "*", given.VAR_KEYWORD: "**"}.get(given.kind, "")
        default = "" if given.default is given.empty else f"={_default(given.default)}"
        shown.append(f"{stars}{given.name}{default}")
    return f"({', '.join(shown)})"


def _default(value: Any) -> str:
    return repr(value) if isinstance(value, SHORT) or value == () else "..."


def first_line(thing: Any) -> str:
    """The first sentence of the docstring."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


if __name__ == "__main__":
    PAGE.write_text(with_lists(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
