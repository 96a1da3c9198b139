"""`fedbench methods [NAME]`: the table of methods, the options of one."""

import inspect
from collections.abc import Iterator

from fedbench.cli import OK, command
from fedbench.cli.help import option_rows, table_lines
from fedbench.errors import ConfigError
from fedbench.methods import METHODS, load

USAGE = "usage: fedbench methods [NAME]\n\nLists the methods, or the options of one with default, range and source."


@command
def main(argv: list[str]) -> int:
    """Prints the table, or one method's options."""
    names = [word for word in argv if word != "--debug"]
    if "-h" in names or "--help" in names:
        print(USAGE)
    elif len(names) > 1 or any(name.startswith("-") for name in names):
        raise ConfigError(
            f"methods {' '.join(names)}: at most one name is expected, for example `fedbench methods fedcac`"
        )
    else:
        print("\n".join(_one(names[0]) if names else _all()))
    return OK


def _all() -> Iterator[str]:
    name_width = max(map(len, METHODS))
    family_width = max(len(entry.family) for entry in METHODS.values())
    for name, entry in METHODS.items():
        yield f"{name:<{name_width}}  {entry.year or '':<4}  {entry.family:<{family_width}}  {entry.line}"


def _one(name: str) -> Iterator[str]:
    kind = load(name)
    if name in METHODS:
        entry = METHODS[name]
        yield f"{name}: {entry.line} ({entry.paper}{f' {entry.year}' if entry.year else ''})"
    yield from inspect.cleandoc(kind.__doc__ or name).splitlines()
    needs = [
        what for what, needed in (("a classifier head", kind.needs_head), ("a public set", kind.needs_public)) if needed
    ]
    if needs:
        yield f"Needs {' and '.join(needs)}."
    if kind.train_defaults:
        yield "Own defaults: " + ", ".join(f"train.{key} {value}" for key, value in kind.train_defaults.items())
    yield ""
    yield from table_lines(option_rows(kind.Options, "--method."))
