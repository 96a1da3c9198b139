"""`fedbench data NAME`: fetch or import a data set, decode it, say what it holds."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.cli import FAILED, OK, command
from fedbench.cli.flags import Flag, parse
from fedbench.errors import ConfigError

if TYPE_CHECKING:
    from fedbench.data import Dataset

FLAGS = (
    Flag("from", "folder or archive (tar, zip) that holds the published files: they are copied to the cache", "PATH"),
    Flag("check", "compare the decoded images with the checksum they were written with"),
)
USAGE = """usage: fedbench data NAME [--from PATH] [--check] [--data.KEY VALUE ...]

Fetches or imports a data set, decodes it once for this machine and prints what it holds.

NAME             digits, mnist, fmnist, cifar10, cifar100, parquet:PATH, folder:PATH, package.module:factory
"""


@command
def main(argv: list[str]) -> int:
    """Prints counts, classes, shape and cache; fails where a check fails."""
    if not argv or "-h" in argv or "--help" in argv:
        print(USAGE + "\n".join(f"--{f'{flag.name} {flag.metavar}':<15}{flag.description}" for flag in FLAGS))
        return OK
    if argv[0].startswith("-"):
        raise ConfigError(f"data {argv[0]}: the name of the data set comes first, for example `fedbench data cifar10`")
    config, asked = parse(["--data", *argv], FLAGS, "fedbench data")
    from fedbench.data import Dataset, cache, importing

    if getattr(asked, "from"):
        importing.import_files(config.data.name, Path(getattr(asked, "from")).expanduser())
    dataset = Dataset.load(config.data, shown)
    assert dataset.folder is not None
    intact = cache.intact(dataset.folder) if asked.check else None
    lines = [*described(dataset), ("cache", f"{dataset.folder} ({cache.size(dataset.folder) / 1e6:.1f} MB)")]
    if intact is not None:
        lines.append(("check", "as decoded" if intact else "damaged: delete the folder and start again"))
    print("\n".join(f"{key:<10}{value}" for key, value in lines))
    return FAILED if intact is False else OK


def described(dataset: "Dataset") -> Iterator[tuple[str, str]]:
    """Counts, classes and shape."""
    names = ", ".join(dataset.class_names[:12]) + (", ..." if dataset.classes > 12 else "")
    yield "data", dataset.name
    yield "images", f"{dataset.train_rows} train, {dataset.test_rows} test"
    yield "shape", "{} x {} x {} (channels, height, width)".format(*dataset.shape)
    yield "classes", f"{dataset.classes}" + (f": {names}" if names else "")
    yield "mean", ", ".join(f"{value:.4f}" for value in dataset.mean)
    yield "std", ", ".join(f"{value:.4f}" for value in dataset.std)
    yield from (("note", note) for note in dataset.notes)


def shown(what: str, done: int, total: int) -> None:
    """A line that counts up on a terminal; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r{what}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
