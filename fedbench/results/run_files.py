"""The files of one configuration's runs, as far as they are as they were written."""

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pandas as pd
import pyarrow as pa
import yaml
from pydantic import TypeAdapter, ValidationError

from fedbench.checksums import CHANGED, KEY, change_of, is_text_changed
from fedbench.config.files import FastLoader
from fedbench.results.files import (
    concatenate_tables,
    known_checksums,
    read_json,
    read_lines,
    read_table,
    rerun_hint,
    table_pieces,
)
from fedbench.results.schema import ConfigShape

CONFIG = TypeAdapter(ConfigShape)


class RunFiles:
    """Reads files of the folders of runs; damaged and changed ones are left out and noted in `problems`, by folder."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.problems: dict[Path, list[str]] = {folder: [] for folder in folders}
        self._checksums: dict[Path, dict[str, str]] = {}

    @property
    def remedies(self) -> list[str]:
        """Every problem once, with the name of its folder and its remedy."""
        named = self.problems.items()
        return list(
            dict.fromkeys(f"{folder.name}/{line}; {rerun_hint(folder)}" for folder, lines in named for line in lines)
        )

    def note(self, folder: Path, problem: str) -> None:
        """Adds a problem of a folder."""
        self.problems[folder].append(problem)

    def is_whole(self, path: Path) -> bool:
        """Whether a file is as it was written, if its checksum is known; if not, adds it to `problems`."""
        folder = next(known_folder for known_folder in self.folders if path.is_relative_to(known_folder))
        known = self._listed(folder).get(name := path.relative_to(folder).as_posix())
        grows = name == "metrics.jsonl" and not (folder / "summary.json").exists()
        why = change_of(path, known, grows) if known else None
        if why:
            self.note(folder, f"{name}: {why}, and is left out")
        return not why

    def json(self, folder: Path, name: str) -> dict[str, Any]:
        """A JSON file of a folder; empty without one."""
        return read_json(folder / name, self.problems[folder]) if self.is_whole(folder / name) else {}

    def lines(self, name: str) -> list[tuple[Path, dict[str, Any]]]:
        """The lines of a file of JSON lines in all folders, each with its folder."""
        whole = [folder for folder in self.folders if self.is_whole(folder / name)]
        return [(folder, row) for folder in whole for row in read_lines(folder / name, self.problems[folder])]

    def table(self, name: str, schema: pa.Schema) -> pd.DataFrame:
        """A Parquet table of all folders, or its pieces so far."""
        tables = [
            read_table(path, schema, self.problems[folder])
            for folder in self.folders
            for path in self._parts(folder, name)
        ]
        return concatenate_tables(tables, schema).to_pandas()

    def matching(self, folder: Path, pattern: str) -> list[Path]:
        """The files of a run that match a pattern and are as they were written."""
        listed = {folder / name for name in self._listed(folder) if PurePath(name).match(pattern)}
        return sorted(filter(self.is_whole, listed.union(folder.glob(pattern))))

    def config(self, folder: Path) -> dict[str, Any]:
        """The configuration of a folder as a tree; empty without one."""
        path, has_checksum = folder / "config.yaml", KEY in read_json(folder / "environment.json", [])
        if not self.is_whole(path) or not (path.exists() or has_checksum):
            return {}
        try:
            tree = yaml.load(text := path.read_text(), FastLoader)
            if is_text_changed(text, has_checksum):
                self.note(folder, f"config.yaml: {CHANGED}, and is left out")
                return {}
            CONFIG.validate_python(tree)
            return dict(tree)
        except (yaml.YAMLError, OSError, ValueError, RecursionError):
            self.note(folder, "config.yaml cannot be read and is left out")
            return {}

    def _parts(self, folder: Path, name: str) -> list[Path]:
        """The file of a table, or its pieces so far if the run is not finished."""
        pieces = [] if (folder / name).exists() else self.matching(folder, table_pieces(name))
        return pieces or [path for path in [folder / name] if self.is_whole(path)]

    def _listed(self, folder: Path) -> dict[str, str]:
        if folder not in self._checksums:
            self._checksums[folder] = known_checksums(folder)
        return self._checksums[folder]


def config_faults(tree: Any) -> Iterator[str]:
    """Mistakes in a configuration, as far as it is read here."""
    try:
        CONFIG.validate_python(tree)
    except ValidationError as error:
        yield f"config.{'.'.join(map(str, error.errors()[0]['loc']))}: {error.errors()[0]['msg']}"
