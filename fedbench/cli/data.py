"""`fedbench data NAME`: downloads or imports a data set, decodes, checks and summarises it."""

import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.cli import command
from fedbench.cli.exits import FAILED, OK
from fedbench.cli.flags import Flag
from fedbench.cli.help import option_rows, source_options, table_lines
from fedbench.cli.parse import parse
from fedbench.config.keys import nest
from fedbench.config.words import range_of
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.config import Config
    from fedbench.data import Dataset, Partition

FLAGS = (
    Flag(
        "from",
        "folder, archive (tar, zip) or folder of archives with the published files, to copy to the cache",
        "PATH",
    ),
    Flag("check", "check the published files and the decoded images against their checksums"),
    Flag("write", "write how the data were read as keys, for --config of any command", "FILE"),
    Flag("preview", "write a page with sample images and the counts of classes and domains"),
)
USAGE = """usage: fedbench data NAME [--from PATH] [--check] [--write FILE] [--preview] [--partition SCHEME] [--out DIR]
                          [--data.KEY V]

Downloads or imports a data set, decodes it once per machine and says how it was read. With --preview, or with keys of
a partition (--partition dirichlet --partition.alpha 0.1 ...), it also writes results/data/NAME/preview.html.
"""
PAUSE = 0.1
"""Seconds between two updates of a line on a terminal."""
LONG_PAUSE = 10.0
"""Seconds between two lines where there is no terminal."""


@command
def main(argv: list[str]) -> int:
    """Prints how a data set was read; returns a failure if a check fails."""
    if not argv or "-h" in argv or "--help" in argv:
        name = argv[0] if argv and not argv[0].startswith("-") else None
        print("\n".join(help_lines(name)))
        return OK
    if argv[0].startswith("-"):
        raise ConfigError(f"data {argv[0]}: give the name of the data set first, for example `fedbench data cifar10`")
    config, args = parse(["--data", *argv], FLAGS, "fedbench data")
    from fedbench.config.files import write_yaml
    from fedbench.data import Dataset, importing, partition
    from fedbench.data.describe import description_of, written_keys

    progress = ProgressLine()
    if getattr(args, "from"):
        importing.import_files(config.data.name, Path(getattr(args, "from")).expanduser(), progress)
    dataset = Dataset.of_run(config, progress)
    parted = partition(dataset, config, config.seeds[0]) if "partition" in config.model_fields_set else None
    description = description_of(dataset, config, parted)
    lines, whole = [*description.rows, *further_lines(dataset)], True
    if args.check:
        results = list(checks(dataset, config))
        whole = all(passed for passed, _ in results)
        lines += [("check", text) for _, text in results]
    if parted:
        lines += partition_lines(dataset, config, parted)
    if args.write:
        write_yaml(Path(args.write), nest(written_keys(description, config)))
        lines.append(("written", f"{args.write}: --config {args.write} reads the same"))
    if args.preview or parted:
        lines.append(("page", str(page(dataset, config, parted))))
    print("\n".join(f"{key:<11}{value}" for key, value in lines))
    return OK if whole else FAILED


def help_lines(name: str | None = None) -> Iterator[str]:
    """The command's help, with the options of a data set, or the lists of data sets and schemes.

    Raises ConfigError for an unknown data set.
    """
    from fedbench.data import partitions, sources

    yield USAGE
    yield from (f"--{f'{flag.name} {flag.metavar}':<15}{flag.description}" for flag in FLAGS)
    if name and source_options(name).model_fields:
        yield from ("", f"KEY of {name}", *table_lines(option_rows(source_options(name), "--data.")))
        return
    wrap = partial(textwrap.wrap, width=100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    for title, names in (("NAME", sources.names()), ("SCHEME", partitions.names())):
        yield from ("", title, *wrap(", ".join(names)))


def further_lines(dataset: "Dataset") -> Iterator[tuple[str, str]]:
    """Licence and place of a data set."""
    from fedbench.data import cache, sources

    assert dataset.folder is not None
    if (published := sources.published_of(dataset.name)) and published.licence:
        yield "licence", published.licence
    yield "cache", f"{dataset.folder} ({cache.size_on_disk(dataset.folder) / 1e6:.1f} MB)"


def checks(dataset: "Dataset", config: "Config") -> Iterator[tuple[bool, str]]:
    """The result of each check, and its description."""
    from fedbench.data import cache, importing

    assert dataset.folder is not None
    intact = cache.is_intact(dataset.folder)
    yield intact, "decoded images: " + ("intact" if intact else "damaged: delete the folder and run this again")
    published, text = importing.compare_checksums(config.data)
    yield published, f"files: {text}"


def partition_lines(dataset: "Dataset", config: "Config", parted: "Partition") -> Iterator[tuple[str, str]]:
    tested = range_of([len(client.test) for client in parted.clients])
    yield "partition", f"{config.partition.name}, fingerprint {parted.fingerprint()[:16]}"
    yield "", f"{tested} test samples at a client{positives(dataset, parted)}"


def positives(dataset: "Dataset", parted: "Partition") -> str:
    """How many of a client's test samples are positive, where there are two classes."""
    if dataset.classes != 2 and dataset.task != "binary":
        return ""
    return f", of which {range_of([int((dataset.targets[own.test] > 0.5).sum()) for own in parted.clients])} positive"


def page(dataset: "Dataset", config: "Config", parted: "Partition | None") -> Path:
    """Writes the preview and returns its path."""
    from fedbench.studies.preview import preview

    slug = config.data.name.rstrip("/").rpartition("/")[2].replace(":", "-") or "data"
    folder = config.out or Path("results") / "data" / slug
    try:
        return preview(dataset, config, parted, folder / "preview.html")
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written ({error.strerror})") from error


class ProgressLine:
    """Progress on stderr: a counting line on a terminal, occasional lines elsewhere."""

    def __init__(self) -> None:
        self.what, self.last, self.terminal = "", 0.0, sys.stderr.isatty()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self.what:
            self.what, self.last = what, now if not self.terminal else 0.0
        ended = done >= total
        if not ended and now - self.last < (PAUSE if self.terminal else LONG_PAUSE):
            return
        if ended and not self.terminal and now - self.last < LONG_PAUSE:
            return
        self.last = now
        text = f"{what}: {amount(what, done)} of {amount(what, total)}"
        print(f"\r{text}" if self.terminal else text, end="\n" if ended or not self.terminal else "", file=sys.stderr)
        sys.stderr.flush()


def amount(what: str, count: int) -> str:
    """Formats a count; downloads count bytes."""
    return f"{count / 1e6:,.1f} MB" if what.startswith("downloading") else f"{count:,}"
