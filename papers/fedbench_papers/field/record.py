"""field.parquet: the numbers of the field as one tidy table, which says in its metadata what the columns mean.

A row is one number. Page, findings and tables are made of it alone.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedbench.errors import ConfigError
from fedbench.results.files import UNREADABLE, name_file_in_errors

FIELD_FILE = "field.parquet"
RECORDED = Path(__file__).with_name(FIELD_FILE)
"""The record that is shipped with the package."""
ABOUT = b"fedbench.field"
"""The key of the metadata that says what was compared."""
COLUMNS = {
    "setting": "name of the setting, see the metadata under its name",
    "method": "name of the method; of a variant with its options",
    "against": "the method that the number is a difference from: this method minus that one, paired by client and seed",
    "seed": "seed of the run; missing where a number is over all seeds",
    "point": "after_agg: models as aggregated; after_fit: after another local training; newcomers: of "
    "clients that join after the last round, after their most local epochs; missing for costs",
    "quantity": "what the number is",
    "value": "the number",
}
QUANTITIES = {
    "score": "test score, mean over clients, as a share: accuracy, or AUROC where that decides",
    "worst_tenth": "mean test score of the worst tenth of clients, as a share",
    "spread": "standard deviation of the test score over clients, as a share",
    "seconds": "processor time of a run, mean over seeds",
    "megabytes": "traffic of a client in a run, both ways, in MB (10^6 bytes)",
    "steps": "gradient steps of a client in a run; of centralized its own",
    "gain": "mean difference over seeds, as a share",
    "gain_low": "low end of its interval, corrected for the number of methods of the setting and of looks at its seeds",
    "gain_high": "high end of it",
    "seeds": "number of seeds behind a difference",
    "withheld": "1 if no verdict is given although the interval decides: an outlying seed decides, or there is a doubt",
    "may_be_best": "1 if the method may be the best of its setting, 0 if another one is surely better; missing where "
    "the method does not compete, was not at work (degenerate), failed in some seeds, or is worse but for a doubt",
    "candidates": "number of candidates of tuning",
}
"""What the values are, by quantity."""
TYPES = {**dict.fromkeys(COLUMNS, "string"), "seed": "Int32", "value": "float64"}
"""In memory."""
SCHEMA = pa.schema(
    [
        *((name, pa.dictionary(pa.int16(), pa.string())) for name in ("setting", "method", "against")),
        ("seed", pa.int32()),
        *((name, pa.dictionary(pa.int8(), pa.string())) for name in ("point", "quantity")),
        ("value", pa.float64()),
    ]
)


@dataclass(frozen=True)
class FieldRecord:
    """numbers: a row per number, see COLUMNS. about: by setting, what was compared and when (`measures.about`)."""

    numbers: pd.DataFrame = field(default_factory=lambda: _joined([]))
    about: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> "FieldRecord":
        """Raises ConfigError if the file is missing, damaged, or no record of the field."""
        if not file.is_file():
            raise ConfigError(f"{file}: no such file; a record of the field is expected, {FIELD_FILE}")
        try:
            table = pq.read_table(file)
            about = json.loads((table.schema.metadata or {})[ABOUT])["settings"]
        except (*UNREADABLE, pa.ArrowException) as error:
            raise ConfigError(f"{file}: damaged ({type(error).__name__}), or no record of the field") from None
        return cls(table.to_pandas().astype(TYPES), about)

    def write(self, file: Path) -> None:
        """Atomically."""
        words = {"columns": COLUMNS, "quantities": QUANTITIES, "settings": self.about}
        table = pa.Table.from_pandas(self.numbers, SCHEMA, preserve_index=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        with name_file_in_errors(file):
            pq.write_table(table.replace_schema_metadata({ABOUT: json.dumps(words).encode()}), part, compression="zstd")
            part.replace(file)

    def with_setting(self, name: str, numbers: pd.DataFrame, about: Mapping[str, Any]) -> "FieldRecord":
        """With what was measured in a setting in place of what stood there."""
        kept = self.numbers[self.numbers["setting"] != name]
        return FieldRecord(_joined([kept, numbers]), {**self.about, name: about})

    def with_methods(self, name: str, numbers: pd.DataFrame, about: Mapping[str, Any]) -> "FieldRecord":
        """With the rows of further methods in a setting that is recorded, in place of earlier ones of theirs.

        about: of the comparison that they are from.
        """
        ours = self.numbers
        kept = ours[(ours["setting"] != name) | ~ours["method"].isin(set(numbers["method"]))]
        known = self.about[name]
        further = {*numbers["method"], *about["failed"]}
        both: dict[str, Any] = {"date": about["date"]}
        for key in ("chosen", "refused", "failed", "doubts"):
            kept_words = {label: value for label, value in known[key].items() if label not in further}
            both[key] = {**kept_words, **{label: value for label, value in about[key].items() if label in further}}
        still = {*known["degenerate"]} - further
        both["degenerate"] = sorted(still | (further & {*about["degenerate"]}))
        added = sorted({*known.get("added", ()), *further})
        return FieldRecord(_joined([kept, numbers]), {**self.about, name: {**known, **both, "added": added}})

    def merged(self, others: Iterable["FieldRecord"]) -> "FieldRecord":
        """With the settings of other records, that of the later date where several have one.

        Methods that were added to a setting stay.
        """
        record = self
        for other in others:
            for name, about in other.about.items():
                rows = other.numbers[other.numbers["setting"] == name]
                if name not in record.about:
                    record = record.with_setting(name, rows, about)
                    continue
                ours, before = record.numbers[record.numbers["setting"] == name], record.about[name]
                is_later = about["date"] > before["date"]
                first, second = ((rows, about), (ours, before)) if is_later else ((ours, before), (rows, about))
                record = record.with_setting(name, *first)
                extra = {*second[1].get("added", ())} - {*first[0]["method"]}
                if extra:
                    own = second[0][second[0]["method"].isin(extra)]
                    record = record.with_methods(name, own, {**second[1], "failed": {}, "date": first[1]["date"]})
        return record

    def settings(self) -> list[str]:
        """The settings that were measured."""
        return [*self.about]

    def methods(self) -> list[str]:
        """The methods that have a number."""
        return [*dict.fromkeys(self.numbers["method"])]


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [frame.astype(TYPES) for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=[*COLUMNS]).astype(TYPES)
