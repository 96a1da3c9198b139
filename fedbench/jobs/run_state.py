"""Whether a folder may be used for a run: what it holds, and what has changed since."""

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.data.partitions import Partition
from fedbench.errors import ConfigError
from fedbench.jobs import provenance
from fedbench.jobs.description import file_fingerprints, fingerprinted_files
from fedbench.jobs.kept_files import check_description, kept_config, kept_json
from fedbench.jobs.longer_runs import check_longer, shorter_run
from fedbench.jobs.run_names import changed_keys, earlier_runs, is_finished
from fedbench.results.files import damage_error
from fedbench.results.plan import Plan, is_study
from fedbench.results.reader import Records
from fedbench.results.settings_file import is_matrix
from fedbench.results.summary import damages_in

RESULTS = ("summary.json", "metrics.jsonl", "checkpoint")
"""Files that exist only if a run has begun, that is, if there is a config.yaml."""
State = Literal["new", "begun", "done"]


def state_of(folder: Path, config: Config) -> State:
    """The state of a run in a folder. Raises ConfigError if the folder holds another run or a damaged one.

    A run with fewer rounds that can continue counts as begun. A merged run counts as new if it has fewer rounds, or if
    the user's code has changed since.
    """
    if not (folder / "config.yaml").exists():
        left = next((name for name in RESULTS if (folder / name).exists()), None)
        if left and not is_study(folder):  # a merged run is merged again
            raise damage_error(folder / "config.yaml", f"missing, although {left} is there")
        return "new"
    shorter = shorter_run(folder, config)
    if not shorter and (changed := changed_keys(kept_config(folder), config)):
        raise ConfigError(
            f"{folder} holds a run of another configuration ({', '.join(changed[:4])}): "
            "give the same values to continue it, or another --out"
        )
    check_description(folder, config.seeds)
    check_same_files(folder, config)
    if since := changes_since(folder, config):
        if not config.keep_results and is_study(folder):
            return "new"
        if not config.keep_results or not is_finished(folder):
            take = "give --keep-results to use it, or" if is_finished(folder) else "give"
            raise ConfigError(f"{folder} holds a run of other code or data ({since}); {take} another --out")
    if shorter:
        if is_study(folder):
            return "new"
        check_longer(folder, shorter, config.rounds)
        return "begun"
    summary = folder / "summary.json"
    if not summary.exists() or not kept_json(summary).get("complete"):
        return "begun"
    if not Records(folder).complete():
        raise damage_error(folder / "metrics.jsonl", "ends before the last round of a finished run")
    for name, why in damages_in(folder, kept_json(summary)):
        raise damage_error(folder / name, why, folder)
    return "done"


def refuse_other_results(folder: Path, command: str) -> None:
    """Raises ConfigError if a folder holds the results of another command, to which this one's would be added.

    command: `run`, `grid`, `compare`, or `compare --over`.
    """
    if is_matrix(folder):
        kind = "compare --over"
    elif is_study(folder):
        kind = Plan.read(folder).kind
    else:
        kind = "run" if (folder / "config.yaml").exists() else command
    if kind != command:
        raise ConfigError(f"out = {folder}: holds results of fedbench {kind}, not of {command}; give another --out")


def check_same_partition(folder: Path, seed: int, now: Partition) -> None:
    """Raises ConfigError if a run began with other rows because a partition's file or the data have changed since."""
    known = kept_json(folder / "environment.json").get("partition_fingerprint", {})
    if known.get(str(seed)) != now.fingerprint():
        raise ConfigError(
            f"{folder} holds a run that began with another partition (seed {seed}): the data set or the file of "
            "partition.path has changed since; bring it back, or give another --out"
        )


def check_same_files(folder: Path, config: Config) -> None:
    """Raises ConfigError if partition.path or model.weights has other content than when a run began."""
    paths, fingerprints = fingerprinted_files(config), file_fingerprints(config)
    known = kept_json(folder / "environment.json") if fingerprints else {}
    for key, now in fingerprints.items():
        if known.get(key, now) != now:
            what = {"weights_fingerprint": "other weights", "partition_file_fingerprint": "another partition"}[key]
            raise ConfigError(
                f"{folder} holds a run that began with {what}: {paths[key]} has changed since; bring it back, or give "
                "another --out"
            )


def warn_about_changes(runs: Iterable[tuple[Path, Config]]) -> None:
    """Warn if the user's code has changed since runs were made. runs: folders with their configurations."""
    anew, taken = Counter[str](), Counter[str]()
    for folder, config in runs:
        if (folder / "config.yaml").exists():
            if since := changes_since(folder, config):
                taken[since] += 1
        elif other := earlier_runs(folder, config):
            anew[changes_since(other[0], config)] += 1
    say = logging.getLogger("fedbench").warning
    for since, count in anew.items():
        say("%s: run again (%s; earlier results stay, --keep-results uses them)", since, plural(count, "run"))
    for since, count in taken.items():
        say("%s: kept results are used all the same (%s; --keep-results)", since, plural(count, "run"))


def changes_since(folder: Path, config: Config) -> str:
    """The changes of the user's code since a run was made, in words; empty if there are none."""
    files = provenance.changed_files(kept_json(folder / "environment.json"), config)
    if files is None:
        names = ", ".join(provenance.user_names(config).values()) or config.data.name
        return f"no record says with which content of {names} kept results were made"
    return provenance.changed_since(files) if files else ""
