"""`fedbench methods [NAME]`: lists the methods, or one method's options."""

import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.kept_answers import Question
from fedbench.cli.lines import loading, terminal_width
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.methods.base import About, Method

USAGE = (
    "usage: fedbench methods [NAME]\n\n"
    "Lists the methods, or one method's own decisions and its options with default, range and source."
)


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Prints the table, or one method's options."""
    if len(argv) > 1 or any(name.startswith("-") for name in argv):
        raise ConfigError(f"methods {' '.join(argv)}: give at most one name, for example `fedbench methods fedcac`")
    question = Question(["methods", argv, terminal_width()])
    if (text := question.known()) is None:
        loading("which methods use")
        text = "\n".join(_describe_method(argv[0]) if argv else _list_methods())
        if argv or not _say_faults():
            question.keep(text)
    print(text)
    return OK


def _list_methods() -> Iterator[str]:
    from fedbench.methods import METHODS

    every = {name: about_of(kind) for name, kind in METHODS.loadable()}
    name_width = max(map(len, every))
    family_width = max(len(about.family) for about in every.values())
    for name, about in sorted(every.items(), key=lambda item: (item[1].year or 0, item[0])):
        yield f"{name:<{name_width}}  {about.year or '':<4}  {about.family:<{family_width}}  {about.line}"


def _say_faults() -> bool:
    """Names the methods of packages that cannot be loaded; whether there are any."""
    from fedbench.methods import METHODS

    faults = [*METHODS.faults()]
    for fault in faults:
        print(f"left out: {fault}", file=sys.stderr)
    return bool(faults)


def about_of(kind: "type[Method]") -> "About":
    """What a class says of itself. Its base's paper is not its own, so without `about` it has a line and a family."""
    from fedbench.methods.base import About

    owner = next(base for base in kind.__mro__ if "about" in vars(base))
    return kind.about if owner is kind else About(f"derives from {owner.__name__}", family=kind.about.family)


def _describe_method(name: str) -> Iterator[str]:
    from fedbench.cli.help import option_rows, table_lines
    from fedbench.config import TrainConfig
    from fedbench.config.section import make_section
    from fedbench.jobs.description import decisions
    from fedbench.methods import load
    from fedbench.methods.base import DECISIONS_HEADING, NEEDS

    kind = load(name)
    options = make_section(kind.Options, {}, "method.")
    about = about_of(kind)
    if about.line:
        source = f" ({about.paper}{f' {about.year}' if about.year else ''})" if about.paper else ""
        yield f"{name}: {about.line}{source}"
    yield from inspect.cleandoc(kind.__doc__ or name).splitlines()
    if needs := [words for need, words in NEEDS.items() if need in kind.needs]:
        yield f"Needs {' and '.join(needs)}."
    if kind.train_defaults:
        yield "Own defaults: " + ", ".join(f"train.{key} {value}" for key, value in kind.train_defaults.items())
    if lines := decisions(name, options, TrainConfig(**kind.train_defaults)):
        yield f"\n{DECISIONS_HEADING}"
        for line in lines:
            yield from textwrap.wrap(line, terminal_width(), initial_indent="- ", subsequent_indent="  ")
    if rows := option_rows(kind.Options, "--method."):
        yield ""
        yield from table_lines(rows)
