"""`fedbench metrics DIR --metrics NAME,...`: scores kept predictions by any metric, without training."""

import re
from functools import partial
from typing import Any

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag, split_words
from fedbench.cli.lines import loading
from fedbench.cli.parse import read_flags
from fedbench.errors import ConfigError

USAGE = """usage: fedbench metrics DIR --metrics NAME[,NAME...]

Scores the predictions that a run, or the final runs of a study, kept with --save-predictions: metrics of the task, or
package.module:function. Prints a table: mean over clients, over the worst tenth of them (of up to ten the worst one),
and pooled over the test samples of all clients, each as mean over seeds. Writes metrics-NAME.csv with every client's
value into DIR."""
FLAGS = (Flag("metrics", "metrics of the task, or package.module:function", "NAME,...", many=True),)
UNUSUAL = re.compile(r"[^\w.-]+")
"""Characters that file names do without."""


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Prints the table and writes a CSV file for each metric. Raises ConfigError."""
    folder, args = read_flags(argv, "metrics", FLAGS)
    names = list(dict.fromkeys(split_words(args.metrics)))
    if not names:
        raise ConfigError("metrics: name some, for example `fedbench metrics results/run/NAME --metrics f1_macro`")
    loading("computing the metrics")
    from fedbench.results.unscored import worst_label
    from fedbench.studies.rescore import rescore, summary

    table = rescore(folder, names)
    clients = table[table["client"] >= 0].dropna(subset="value")
    worst = worst_label(clients.groupby(["metric", "method", "point", "seed"]).size().tolist())
    heads = ["metric", "method", "evaluated", "seeds", "mean", worst, "pooled"]
    rows = [heads, *([*map(_format_value, row)] for row in summary(folder, table).itertuples(index=False))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for name, values in table.groupby("metric", sort=False):
        path = folder / f"metrics-{UNUSUAL.sub('-', str(name).rpartition(':')[2])}.csv"
        values.assign(client=values["client"].map(lambda client: "all" if client < 0 else client)).to_csv(
            path, index=False
        )
        print(path)
    return OK


def _format_value(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
