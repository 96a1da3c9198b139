"""A command line, read."""

from fedbench.cli.parse import parse
from fedbench.config import Config


def config(line: str) -> Config:
    return parse(line.split())[0]
