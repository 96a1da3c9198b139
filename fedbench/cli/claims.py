"""`fedbench claims`: the claims of papers, tested."""

from typing import Any

from fedbench.cli import OK, command
from fedbench.cli.flags import Flag, read
from fedbench.cli.help import flag_text
from fedbench.cli.stages import Stages, read_count
from fedbench.errors import ConfigError

FLAGS = (
    Flag("only", "rows to run or go on with, by id, or all; without it every row is listed with its cost", "ID,...", many=True),
    Flag(
        "sources",
        "where the sets cifar10, cifar10_jpeg, fmnist and pacs are: a folder with folders of these names, or NAME=WHERE "
        "(a data name, parquet:PATH, or a folder of published files) [default: the published sets, cifar10 for both]",
        "DIR | NAME=WHERE",
        many=True,
    ),
    Flag("out", "results folder; runs are kept below it by what they are, and rows share them [default results]", "DIR"),
    Flag("trials", "most runs side by side [whole number >= 1 or auto; default auto: as many as fit]", "N"),
    Flag("debug", "show the stack trace of a mistake"),
    Flag("help", "this list"),
)
