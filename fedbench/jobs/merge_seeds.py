"""Merges the records of several seeds, as one run of all of them would have written them."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedbench.checksums import KEY, with_checksum
from fedbench.config import Config
from fedbench.results.files import (
    concatenate_tables,
    damage_error,
    read_json,
    read_table,
    write_arrays_atomically,
    write_atomically,
    write_json_atomically,
)
from fedbench.results.files import write_parquet_atomically as write_table
from fedbench.results.outcomes import OUTCOMES_FOLDER
from fedbench.results.predictions import PREDICTIONS_FOLDER
from fedbench.results.reader import Records
from fedbench.results.schema import CLIENTS_SCHEMA, NEWCOMERS_SCHEMA, TRACES_SCHEMA
from fedbench.results.summary import damages_in, write_summary
from fedbench.runtime.kept.paths import MODELS_FOLDER

TABLES = {
    "clients.parquet": CLIENTS_SCHEMA,
    "traces.parquet": TRACES_SCHEMA,
    "newcomers.parquet": NEWCOMERS_SCHEMA,
}
"""The tables of a run; the last one only if clients join after the last round."""


def link(source: Path, target: Path) -> None:
    """Link the files below a folder into another one; copies them if the file system cannot link."""
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)
        try:
            os.link(path, copy)
        except OSError:
            shutil.copy2(path, copy)


def gather(folder: Path, config: Config, runs: Sequence[Path]) -> None:
    """Write the files of a run into a folder. runs: the finished folders of its seeds.

    Raises ConfigError if one of them has lost a file or was changed since it ended.
    """
    for run in runs:
        for name, why in damages_in(run, read_json(run / "summary.json", [])):
            raise damage_error(run / name, why, run)
    (folder / "summary.json").unlink(missing_ok=True)  # of other seeds, or of other code
    for name in ("metrics.jsonl", "timings.jsonl"):
        write_atomically(folder / name, b"".join((run / name).read_bytes() for run in runs if (run / name).exists()))
    for name, layout in TABLES.items():
        tables = [read_table(run / name, layout, []) for run in runs if (run / name).exists()]
        if tables or name != "newcomers.parquet":
            write_table(folder / name, concatenate_tables(tables, layout), layout)
    environments = [read_json(run / "environment.json", []) for run in runs]
    prints = {seed: value for known in environments for seed, value in known["partition_fingerprint"].items()}
    finished = environments[-1]["finished"]
    whole = {**environments[0], "partition_fingerprint": prints, "finished": finished, KEY: {}}
    write_json_atomically(folder / "environment.json", whole, own_checksum=True)
    if arrays := Records(*runs).arrays():
        write_arrays_atomically(folder / "partition.npz", arrays)
    else:
        write_atomically(folder / "partition.json", json.dumps(Records(*runs).partition()))
    for kept, name in (
        (config.save_models, MODELS_FOLDER),
        (config.save_predictions, PREDICTIONS_FOLDER),
        (True, OUTCOMES_FOLDER),
    ):
        for run in runs if kept else ():
            link(run / name, folder / name)
    write_atomically(folder / "config.yaml", with_checksum(config.to_yaml()))
    write_summary(Records(folder), Records(*runs).warnings())
