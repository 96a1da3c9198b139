"""What the commands have in common that make figures and tables for papers."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench.cli.flags import Flag, split_words
from fedbench.cli.help import table_lines
from fedbench.errors import ConfigError
from fedbench.methods import split_names

METHODS = (
    Flag("methods", "methods to show, in this order [default: all]", "NAME,...", many=True),
    Flag("names", "what methods are called, for example fedcac=FedCAC", "NAME=TEXT,...", many=True),
)
ALWAYS = (Flag("debug", "show the stack trace of an error"), Flag("help", "show this list"))


def usage_text(command: str, about: str, flags: Sequence[Flag]) -> str:
    """The text of --help."""
    rows = [(f"--{flag.name} {flag.metavar}".rstrip(), flag.description) for flag in (*flags, *ALWAYS)]
    return "\n".join([f"usage: fedbench {command} DIR [flags]", "", about, "", *table_lines(rows)])


def shown_methods(args: Namespace) -> dict[str, Any]:
    """The shown methods and what they are called, by their labels, as keyword arguments. Raises ConfigError."""
    names = dict[str, str]()
    for given in args.names:
        pieces = given.split(",")
        for pair in pieces if all(piece.count("=") == 1 for piece in pieces) else [given]:
            label, equals, text = pair.rpartition("=")
            if not (label and equals and text):
                raise ConfigError(f"--names {pair}: must be NAME=TEXT, for example fedcac=FedCAC")
            names[label_of(label.strip())] = text.strip()
    words = [word.replace(" ", ":", 1) if "=" in word else word for word in split_words(args.methods)]
    return {"methods": [label_of(name) for name in split_names(words)], "names": names}


def file_to_write(path: str | None) -> Path | None:
    """The file of --out, if it is given. Raises ConfigError for a folder."""
    file = Path(path).expanduser() if path else None
    if file is not None and file.is_dir():
        raise ConfigError(f"--out {path}: is a folder; give a file in it")
    return file


def label_of(name: str) -> str:
    """The label of a method or a variant: `fedcac:tau=0.3` -> `fedcac tau=0.3`."""
    method, colon, values = name.rpartition(":")
    return f"{method} {values}" if colon and "=" in values else name
