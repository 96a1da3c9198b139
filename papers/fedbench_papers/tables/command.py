"""`fedbench reproduce`: lists the papers' tables with their cost, or reproduces one."""

from argparse import Namespace
from collections.abc import Iterable
from functools import partial
from typing import Any

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag, split_words
from fedbench.cli.parse import parse
from fedbench.cli.stages import check_trials, read_count, side_by_side
from fedbench.config import Config
from fedbench.config.keys import flat
from fedbench.errors import ConfigError

FLAGS = (
    Flag("figure", "reproduce this figure of the paper, such as fedcac --figure 3", "N"),
    Flag("cells", "run only the cells with these words in their name, such as a data set", "WORD,...", many=True),
    Flag(
        "methods",
        "run and show only these methods, or lines of a figure, such as co-pfl; without it all",
        "NAME,...",
        many=True,
    ),
    Flag(
        "scale", "full: the paper's protocol; small: as in the experiment's file [full or small; default full]", "SCALE"
    ),
    Flag(
        "point",
        "evaluation point of our numbers and of tuning [after_agg or after_fit; default after_agg, but that of the "
        "published numbers for methods where it is another]",
        "POINT",
    ),
    Flag(
        "sources",
        "where image sets are, if they are not to be downloaded: a folder with subfolders of their names, or "
        "NAME=WHERE (a data name, parquet:PATH, or a folder with the published files)",
        "DIR | NAME=WHERE",
        many=True,
    ),
    side_by_side("runs"),
)
ABOUT = """Without PAPER/EXPERIMENT: lists the experiments with their cost. With it: reproduces its tables,
or draws a figure from our runs.
An experiment sets many keys itself, overriding the defaults below: --print-config shows them."""


@partial(command, continues=True)
def main(argv: list[str]) -> int:
    """reproduce the papers' tables, with our numbers next to the published ones"""
    word, rest = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else (None, argv)
    hooks: dict[str, Any] = {"preview": partial(preview, word), "check": check_trials if word else check_listing}
    config, args = parse(
        rest, FLAGS, prog="fedbench reproduce [PAPER/EXPERIMENT | PAPER --figure N]", about=ABOUT, **hooks
    )
    name = experiment_name(word, args)
    trials = read_count("trials", args.trials)
    from fedbench.studies.stages import Stages
    from fedbench_papers.tables.page import reproduction_text
    from fedbench_papers.tables.reproduce import experiments_listing, reproduce

    if name is None:
        for line in experiments_listing(args.scale or "full"):
            print(line, flush=True)  # the next line may measure a step
        return OK
    chosen = choice(args)
    stages = Stages(f"reproduction of {name}", config)
    try:
        made = reproduce(name, config, **chosen, trials=trials, watch=stages.update)
    finally:
        stages.stop()
    print(reproduction_text(made.folder))
    for job, error in stages.failed.items():
        print(f"failed:  {job}: {error}")
    print(f"results: {made.folder}")
    print(f"report:  {made.report}")
    return OK


def experiment_name(word: str | None, args: Namespace) -> str | None:
    """`fedcac --figure 3` means `fedcac/figure-3`. Raises ConfigError for an unknown figure, or one without a paper."""
    if args.figure is None:
        return word
    from fedbench_papers.tables.experiment import figures

    if word is None or "/" in word:
        raise ConfigError(f"--figure {args.figure}: name the paper first, as in `fedbench reproduce fedcac --figure 3`")
    name, names = f"{word}/figure-{args.figure}", [known for known in figures() if known.startswith(f"{word}/")]
    if name not in names:
        numbers = ", ".join(known.rpartition("-")[2] for known in names) or "none"
        raise ConfigError(f"--figure {args.figure}: not among the figures of {word} that can be reproduced: {numbers}")
    return name


def choice(args: Namespace) -> dict[str, Any]:
    """The cells, methods, scale, data and evaluation point to run. Raises ConfigError."""
    from fedbench_papers.image_sources import read_sources
    from fedbench_papers.tables.experiment import sets

    sources = read_sources(split_words(args.sources), sets())
    words = {"cells": args.cells, "methods": split_words(args.methods)}
    return {**words, "scale": args.scale or "full", "sources": sources, "point": args.point}


def check_listing(config: Config, args: Namespace) -> None:
    """Raises ConfigError for what changes nothing in the list of experiments."""
    given = [key for key in flat(config.given()) if key not in ("out", "name")]
    if keys := [*given, *(key for key in ("cells", "methods", "point", "sources") if getattr(args, key))]:
        raise ConfigError(f"--{keys[0]}: changes nothing in the list of experiments; name a PAPER/EXPERIMENT first")


def preview(word: str | None, config: Config, args: Namespace) -> tuple[Config, Iterable[str]]:
    """The output of --print-config: the protocol of the first cell, and the runs of all. Raises ConfigError."""
    if word is None:
        check_listing(config, args)
        return config, ()
    from fedbench.studies.run_studies import preview_studies
    from fedbench_papers.tables.reproduce import distinct, plan_tables

    name = experiment_name(word, args) or word
    studies = distinct(plan_tables(name, config, **choice(args))[1])
    return studies[0].config, preview_studies(studies, read_count("trials", args.trials))
