"""Writes the description of a run into its folder: environment, decisions, partitions and configuration."""

import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedbench import methods, processor, tune_space
from fedbench.checksums import KEY, checksums, with_checksum
from fedbench.config import Config, TrainConfig
from fedbench.data.dataset import Dataset
from fedbench.data.describe import description_of
from fedbench.data.partitions import Partition, scheme
from fedbench.data.partitions.client_names import client_names
from fedbench.installation import version, version_of
from fedbench.jobs import provenance
from fedbench.jobs.shown_samples import shown_samples
from fedbench.methods.base import Method
from fedbench.models.state_dicts import weights_fingerprint
from fedbench.results.files import write_arrays_atomically, write_atomically, write_json_atomically
from fedbench.results.plan import text_of
from fedbench.runtime.ray.cluster import COMMAND
from fedbench.runtime.resolved import ResolvedRun

RECORDED_LIBRARIES = ["torch", "torchvision", "lightning", "ray", "wandb", "numpy", "pandas"]
PARTITION_FILES = ("partition.json", "partition.npz")
DESCRIPTION_FILES = ("environment.json", *PARTITION_FILES, "config.yaml")
MANY = 10_000
"""Number of clients above which a partition is kept as arrays."""


def describe_run(folder: Path, run: ResolvedRun, partitions: dict[int, Partition]) -> None:
    """Write the partitions, environment.json and, last, config.yaml, which marks the run as begun."""
    config, dataset = run.config, run.dataset
    fingerprints = {str(seed): part.fingerprint() for seed, part in partitions.items()}
    more = {
        "pooled": run.method.trainers(run.options) == "pooled",
        "steps_by": run.method.optimizer,
        "validation_part": dataset.val_rows > 0 and config.partition.test != "pooled",
        "partition_headline": scheme.load(config.partition.name).headline,
        "data": {
            **description_of(dataset, config, next(iter(partitions.values()))).as_json(),
            "shown": shown_samples(dataset),
        },
        "traces": [asdict(trace) for trace in run.method.traces],
        "decisions": decisions(config.method.name, run.options, config.train),
    }
    known = {
        **environment(fingerprints, dataset),
        **more,
        **file_fingerprints(config),
        **provenance.code_record(config),
    }
    if config.partition.clients > MANY:
        write_arrays_atomically(folder / "partition.npz", _arrays(dataset, partitions))
    else:
        dealt = {str(seed): {**part.tree(), **_counts(dataset, part)} for seed, part in partitions.items()}
        write_atomically(folder / "partition.json", json.dumps(dealt))
    known[KEY] = checksums(folder, PARTITION_FILES)
    write_json_atomically(folder / "environment.json", known, own_checksum=True)
    write_atomically(folder / "config.yaml", with_checksum(config.to_yaml()))


def decisions(method: str, options: Method.Options, train: TrainConfig) -> list[str]:
    """The decisions in the method's file where its paper leaves details open, and the run's deviations from the paper.

    The latter are in a line of `train.*` keys with no value of the paper or its code, as PAPER of its tune space lists.
    """
    named = {key: values for key, values in tune_space.paper_axes(method).items() if key.startswith("train.")}
    here = {key: getattr(train, key.removeprefix("train.")) for key in named}
    differ = [key for key, values in named.items() if here[key] not in values]
    texts = (f"{key} {' or '.join(map(text_of, named[key]))}, not {text_of(here[key])}" for key in differ)
    deviations = [f"The paper, or its authors' code, trains with {'; '.join(texts)}."] if differ else []
    return [*methods.load(method).decisions(options), *deviations]


def environment(fingerprints: dict[str, str], dataset: Dataset) -> dict[str, Any]:
    """Versions, machine, state of the code, task, partitions and start time."""
    return {
        "versions": {
            "python": platform.python_version(),
            "fedbench": version(),
            **_library_versions(),
        },
        "machine": {"system": platform.platform(), "processor": processor.name(), "cores": processor.cores()},
        "git": _git(),
        "command": _command(),
        "task": dataset.task,
        **({"class_names": list(dataset.class_names)} if dataset.class_names else {}),
        **({"class_labels": list(dataset.class_labels)} if dataset.class_labels else {}),
        "partition_fingerprint": fingerprints,
        "started": time_now(),
        "finished": None,
    }


@cache
def _library_versions() -> dict[str, str | None]:
    return {name: version_of(name) for name in RECORDED_LIBRARIES}


def fingerprinted_files(config: Config) -> dict[str, Path]:
    """The files that the configuration names and that affect results, by the key of their fingerprint."""
    dealt = config.partition.path if "path" in scheme.load(config.partition.name).reads else None
    named = {"weights_fingerprint": config.model.weights, "partition_file_fingerprint": dealt}
    return {key: path for key, path in named.items() if path}


def file_fingerprints(config: Config) -> dict[str, str]:
    """The fingerprints of these files' contents."""
    return {
        key: _weights_fingerprint(path, path.stat().st_mtime_ns)
        for key, path in fingerprinted_files(config).items()
        if path.exists()
    }


@cache
def _weights_fingerprint(path: Path, modified: int) -> str:
    return weights_fingerprint(path)


def _command() -> str | None:
    """The user's command line. A Ray worker was started by another one, and on another machine it is unknown."""
    in_worker = Path(sys.argv[0]).name == "default_worker.py"
    return os.environ.get(COMMAND) if in_worker else " ".join(sys.argv)


def note(folder: Path, **more: Any) -> None:
    """Add to environment.json what is known later."""
    path = folder / "environment.json"
    write_json_atomically(path, {**json.loads(path.read_text()), **more}, own_checksum=True)


def time_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _counts(dataset: Dataset, partition: Partition) -> dict[str, Any]:
    """Rows of the data's two parts; names of clients; samples per class to train on, and in the public set."""
    parts: dict[str, Any] = {"parts": [dataset.train_rows, dataset.test_rows]}
    if any(names := client_names(dataset, partition)):
        parts["names"] = names
    if not dataset.classes:
        return parts
    counts = {**parts, "class_counts": partition.class_counts(dataset.labels, dataset.classes).tolist()}
    if partition.public is not None:
        public = np.bincount(dataset.labels[partition.public], minlength=dataset.classes)
        counts["public_class_counts"] = public.tolist()
    return counts


def _arrays(dataset: Dataset, partitions: dict[int, Partition]) -> dict[str, np.ndarray]:
    """The partitions as arrays that `--partition file` reads."""
    arrays: dict[str, np.ndarray] = {}
    for seed, partition in partitions.items():
        drawn_arrays = partition.arrays() | {"parts": np.array([dataset.train_rows, dataset.test_rows])}
        if dataset.classes:
            drawn_arrays["class_counts"] = partition.class_counts(dataset.labels, dataset.classes)
        arrays |= {f"{seed}/{name}": array for name, array in drawn_arrays.items()}
    return arrays


def _git() -> dict[str, Any] | None:
    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        # Without locks, which would remain in the user's repository if this process were killed.
        words = ("git", "--no-optional-locks", *words)
        return subprocess.run(words, capture_output=True, text=True, timeout=10)

    try:
        commit = ask("rev-parse", "HEAD")
        if commit.returncode:
            return None
        return {"commit": commit.stdout.strip(), "dirty": bool(ask("status", "--porcelain").stdout.strip())}
    except (OSError, subprocess.SubprocessError):
        return None
