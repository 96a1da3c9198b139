"""`fedbench claims`: lists the papers' claims with their cost, or tests them."""

import textwrap
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag, split_words
from fedbench.cli.parse import parse
from fedbench.cli.stages import check_trials, read_count, read_number, side_by_side
from fedbench.config import Config
from fedbench.config.keys import flat
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench_papers.claims.conditions import Conditions
    from fedbench_papers.claims.rows import Row

FLAGS = (
    Flag("only", "ids of rows to run or continue, or all; without it all rows are listed", "ID,...", many=True),
    Flag("readings", "also the other readings of these rows, such as C1-literal of C1", "all", choices=("all",)),
    Flag("scale", "factor on the training samples of every client [number > 0; default 1]", "S"),
    Flag("sources", "where the image sets are: see below", "DIR | NAME=WHERE ...", many=True),
    side_by_side("runs"),
)
KEY_FLAGS = (
    Flag("rounds", "rounds of every run [default: the row's own]", "N"),
    Flag("seeds", "seeds of every run [default: the row's own]", "SEED ..."),
)
USAGE = """usage: fedbench claims [--only ID,...] [--readings all] [--scale S] [--rounds N] [--seeds SEED ...]
                       [--sources DIR | NAME=WHERE ...] [--trials N] [--out DIR]

Without --only: lists every claim with its runs, gradient steps, minutes (estimated from one step on this machine) and
verdict so far: your own, or the one shipped with fedbench. With --only: executes the missing runs of these rows, judges
them, and rewrites OUT/claims/report.html, claims.md and claims.csv after each row. OUT is results by default
(--out); rows share runs, stored in OUT/run. To continue from another machine, copy its claims.json to OUT/claims first.

Where a paper can be read in several ways, the row has the reading that counts, and each other one is a row beside it,
such as C1-literal of C1: --only C1-literal runs it, --only C1 --readings all runs both. Readings are not in the numbers
of claims that hold, and --only all leaves them out.

Each row has its own rounds and seeds and its own number of training images. --rounds and --seeds replace them, --scale
multiplies the images. Such results lie in a folder named after these flags, such as OUT/claims-rounds-5, and are judged
and listed apart from others. Fewer than three seeds give no verdict.
"""
SOURCES = """Rows use the sets cifar10, cifar10_jpeg, fmnist and pacs. --sources takes a folder with subfolders of these
names, or NAME=WHERE for some of them: a data name, parquet:PATH, or a folder with the published files. By default the
published sets are downloaded (except pacs: `fedbench data pacs --from PATH`); cifar10 stands in for both CIFAR-10 sets.
Flags that do not change numbers are allowed: --hosts, --gpus-per-host, --address, --loggers, --checkpoint.every.
"""
HARMLESS = {"resources", "loggers", "wandb", "checkpoint"}
CONDITIONS = {"rounds", "seeds"}
"""Keys of the configuration that all rows can be tested with, like --scale."""


@partial(command, continues=True)
def main(argv: list[str]) -> int:
    """list the papers' claims with their cost, or test them at small scale with a verdict for each"""
    if "-h" in argv or "--help" in argv:
        flags = [*FLAGS[:3], *KEY_FLAGS, *FLAGS[3:]]
        print("\n".join([USAGE, *(f"--{f'{f.name} {f.metavar}':<30}{f.description}" for f in flags), "", SOURCES]))
        return OK
    config, args = parse(argv, FLAGS, "fedbench claims", preview, check=check)
    keys, conditions = harmless_keys(config), conditions_of(config, args)
    trials = read_count("trials", args.trials)
    from fedbench.studies.stages import Stages
    from fedbench_papers.claims.record import CLAIMS_FILE, ClaimsRecord
    from fedbench_papers.claims.rows import DATA
    from fedbench_papers.claims.study import claims, rows_table
    from fedbench_papers.claims.words import tally
    from fedbench_papers.image_sources import read_sources

    sources = read_sources(split_words(args.sources), list(DATA))
    chosen = [row.id for row in chosen_rows(config, args)]
    if not args.only:
        print("\n".join(text_lines(rows_table(sources, config.out, conditions).to_dict("records"), conditions)))
        return OK
    stages = Stages("claims", config)
    try:
        run: dict[str, Any] = {"trials": trials, "watch": stages.update, "on_row": stages.begin}
        done = claims(chosen, sources=sources, out=config.out, keys=keys, conditions=conditions, **run)
    finally:
        stages.stop()
    rows = ClaimsRecord.read(done.folder / CLAIMS_FILE).rows
    print("\n".join(verdict_lines(rows, chosen)))
    print(tally(rows))
    print(f"conditions: {conditions.words}")
    print(f"results: {config.out or 'results'}/{conditions.folder}")
    print(f"report:  {done.report}")
    return OK


def check(config: Config, args: Namespace) -> None:
    """Raises ConfigError if libraries are not installed by which rows run."""
    if args.only:
        check_trials(config, args)


def rows_named(args: Namespace) -> list[str]:
    """The rows named by --only. Raises ConfigError if it names none."""
    only = split_words(args.only)
    if args.only and not only:
        raise ConfigError("--only: name one or more rows such as C1,F3, or all")
    return only


def preview(config: Config, args: Namespace) -> tuple[Config, Iterable[str]]:
    """The output of --print-config for these rows. Raises ConfigError for an unknown row."""
    harmless_keys(config)
    return config, [f"{row.id}: {row.statement}" for row in chosen_rows(config, args)]


def chosen_rows(config: Config, args: Namespace) -> "list[Row]":
    """The rows that --only and --readings name, or all that count. Raises ConfigError."""
    from fedbench_papers.claims.rows import load_rows, select_rows

    rows = load_rows(conditions=conditions_of(config, args))
    return select_rows(rows, rows_named(args) or ["all"], args.readings or "")


def verdict_lines(rows: Sequence[Mapping[str, Any]], chosen: Collection[str]) -> Iterator[str]:
    """The verdicts of the chosen rows, how they depend on the reading, and the readings that were not asked for."""
    from fedbench_papers.claims.study import verdict_line
    from fedbench_papers.claims.words import named_readings, shares_of_readings

    for row in rows:
        if row["id"] in chosen:
            yield f"{row['id']:<4} {verdict_line(row)}"
            if shares := shares_of_readings(row, rows):
                yield f"     {shares}"
            for reading in named_readings(row, rows):
                if reading["id"] not in chosen:
                    yield f"     another reading: --only {reading['id']} ({verdict_line(reading)})"


def harmless_keys(config: Config) -> dict[str, object]:
    """The keys that set where and how to run. Raises ConfigError for a key that would change a claim's test."""
    tree = {key: value for key, value in config.given().items() if key != "out"}
    for key in flat({name: value for name, value in tree.items() if name not in HARMLESS | CONDITIONS}):
        raise ConfigError(f"--{key}: not allowed for claims, which define their own runs; use it with `fedbench run`")
    return flat({name: value for name, value in tree.items() if name in HARMLESS})


def conditions_of(config: Config, args: Namespace) -> "Conditions":
    """What --scale, --rounds and --seeds ask for. Raises ConfigError."""
    from fedbench_papers.claims.conditions import Conditions

    given, scale = config.model_fields_set, read_number("scale", args.scale)
    return Conditions(
        1.0 if scale is None else scale,
        config.rounds if "rounds" in given else None,
        tuple(config.seeds) if "seeds" in given else None,
    )


def text_lines(rows: list[dict[Any, Any]], conditions: "Conditions") -> Iterator[str]:
    """Two or more lines per row, one for all combinations of options, the sum, and where the verdicts come from."""
    from fedbench_papers.claims.record import RECORDED, ClaimsRecord
    from fedbench_papers.claims.words import tally

    yield f"{'row':<11} {'runs':>5} {'steps':>9} {'minutes':>8}  claim; published; verdict"
    for row in [row for row in rows if not row["combined"]]:
        claim = f"another reading of {row['reading_of']}" if row["reading_of"] else row["statement"]
        yield cost_line(row["id"], [row], claim)
        published = [] if row["reading_of"] else [f"published: {row['effect']}"]
        for text in (*published, f"{verdict_head(row)}: {row['verdict']}"):
            yield from textwrap.wrap(text, 110, initial_indent=" " * 38, subsequent_indent=" " * 40)
        if combined := [reading for reading in rows if reading["combined"] and reading["reading_of"] == row["id"]]:
            others = f"{len(combined)} other combinations of what the paper leaves open"
            yield cost_line("", combined, f"{others}: --only {row['id']} --readings all")
    for name, counted in (("all", [row for row in rows if not row["reading_of"]]), ("readings", rows)):
        more = "with all other readings" if name == "readings" else "shared runs counted once; one run per core"
        yield cost_line(name, counted, more)
    yield f"conditions: {conditions.words}"
    if dates := sorted(row["made"] for row in rows if row["recorded"]):
        made = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        yield f"recorded verdicts: made on {made} and shipped with fedbench ({RECORDED}); --only ID tests a row here"
        counts = tally(ClaimsRecord.read(RECORDED).rows)
        yield from textwrap.wrap(counts, 110, initial_indent="  ", subsequent_indent="  ")


def cost_line(name: str, rows: list[dict[Any, Any]], text: str) -> str:
    """What rows cost together, and a text."""
    runs, steps, minutes = (sum(row[key] for row in rows) for key in ("runs", "steps", "minutes"))
    return f"{name:<11} {runs:>5} {steps:>9,} {minutes:>8.1f}  {text}"


def verdict_head(row: dict[Any, Any]) -> str:
    """`verdict`, with its date, and whether it is recorded."""
    if not row["made"]:
        return "verdict"
    return f"recorded verdict ({row['made']})" if row["recorded"] else f"verdict ({row['made']})"
