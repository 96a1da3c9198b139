"""Synthetic folders of runs and grids that follow the schema, with plausible numbers."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict, replace
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedbench import methods
from fedbench.config import Config
from fedbench.data.partitions.scheme import SCHEMES
from fedbench.report.settings_study import SettingsStudy
from fedbench.report.study import Study
from fedbench.results.files import (
    append_lines,
    seed_file,
    write_atomically,
    write_json_atomically,
    write_parquet_atomically,
    write_points,
)
from fedbench.results.outcomes import OUTCOMES_FOLDER, join
from fedbench.results.plan import Entry, Plan
from fedbench.results.reader import Records
from fedbench.results.schema import CLIENTS_SCHEMA, NEWCOMERS_SCHEMA, POINTS, TRACES_SCHEMA, as_json, metrics_line
from fedbench.results.sequential_test import SequentialTest
from fedbench.results.statistics import worst_tenth
from fedbench.results.summary import summarise
from fedbench.tasks import load
from tests.data.conftest import cache_folder, save_images
from tests.report.reading import Page, page_of

__all__ = ["cache_folder", "save_images"]

TASK = load("classification")
CLIENTS, CLASSES, TEST_IMAGES, ROUNDS = 10, 10, 100, 6
GROUPS = {"domain": ("photo", "sketch"), "class": ("9", "10")}
BYTES = {"local": (0, 0), "centralized": (0, 0), "fedmosaic": (250, 125)}


WRITTEN = tempfile.TemporaryDirectory(prefix="fedbench-runs-")


def written_once(write: Callable[..., Path]) -> Callable[..., Path]:
    """Writes a folder once for all that ask for the same, and gives each a copy."""
    known: dict[str, Path] = {}

    @wraps(write)
    def copied(path: Path, *given: Any, **options: Any) -> Path:
        asked = repr((path.name, given, options))
        if asked not in known:
            known[asked] = write(Path(WRITTEN.name, str(len(known)), path.name), *given, **options)
        return Path(shutil.copytree(known[asked], path, dirs_exist_ok=True))

    return copied


@written_once
def write_run(
    path: Path,
    method: str = "fedcac",
    level: float = 0.84,
    fit_level: float | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int = ROUNDS,
    clients: int = CLIENTS,
    spread: float = 0.03,
    skew: float = 0.0,
    done: int | None = None,
    warnings: Sequence[str] = (),
    failed: Sequence[tuple[int, int, str]] = (),
    partition_keys: dict[str, Any] | None = None,
    outcomes: bool = False,
    **asked_more: Any,
) -> Path:
    """A run that approaches `level` after aggregation; `done` stops it early; `failed` holds (round, client, reason).

    Where `evaluate.by` is asked for, clients are of one domain each, photo or sketch, and of one class, 9 or 10.
    `skew` adds a shift per seed, so that methods differ by more or less than their spread over seeds.
    """
    path.mkdir(parents=True, exist_ok=True)
    asked = Config(
        method=method,
        rounds=rounds,
        seeds=list(seeds),
        partition={"clients": clients, **(partition_keys or {})},
        **asked_more,
    )
    write_atomically(path / "config.yaml", asked.to_yaml())
    rows: dict[str, list] = {name: [] for name in CLIENTS_SCHEMA.names}
    lines, timings = [], []
    levels = {"after_fit": level if fit_level is None else fit_level, "after_agg": level}
    up, down = BYTES.get(method, (26_000, 28_000))
    for seed in seeds:
        rng = np.random.default_rng([seed, len(method), sum(map(ord, method))])
        own = np.random.default_rng(seed).normal(0, 0.06, clients)
        noise = rng.normal(0, spread, clients)
        shift = skew * (-1) ** seed * (1 + seed % 3)
        for number in range(1, (done or rounds) + 1):
            reasons = [(client, reason) for at, client, reason in failed if at == number]
            for point, top in levels.items():
                progress = 1 - np.exp(-4 * number / rounds)
                accuracy = 0.12 + (top + shift + own + noise - 0.12) * progress + rng.normal(0, 0.006, clients)
                accuracy = np.round(np.clip(accuracy, 0, 1) * TEST_IMAGES) / TEST_IMAGES
                val = np.clip(accuracy + rng.normal(0, 0.01, clients), 0, 1)
                fit = point == "after_fit"
                scores = {
                    "val_accuracy": float(val.mean()),
                    "test_accuracy": float(accuracy.mean()),
                    "val_loss": float(2.3 * (1 - val.mean())),
                    "test_loss": float(2.3 * (1 - accuracy.mean())),
                    "test_worst_tenth": worst_tenth(accuracy),
                    "test_spread": float(accuracy.std()),
                }
                loss = float(2.3 * np.exp(-3 * progress))
                costs = dict(train_loss=loss, steps=20 * clients, bytes_up=up * clients, bytes_down=down * clients)
                more = {"costs": costs, "failed": reasons} if fit else {}
                lines.append(as_json(metrics_line(TASK, seed, number, point, scores, clients, **more)))
                for client in range(clients):
                    apart = [f"accuracy/{by}={GROUPS[by][client % 2]}" for by in asked.evaluate.by]
                    scores_of = [("val", "accuracy", val, 20), ("test", "accuracy", accuracy, 100 + client)]
                    scores_of += [("test", name, accuracy, 100 + client) for name in apart]
                    for split, metric, value, n in scores_of:
                        values = (seed, number, client, point, split, metric, value[client], n, True)
                        for name, column in zip(rows, values, strict=True):
                            rows[name].append(column)
            timings.append(json.dumps(timing(seed, number, rng)))
    append_lines(path / "metrics.jsonl", lines)
    append_lines(path / "timings.jsonl", timings)
    write_parquet_atomically(path / "clients.parquet", rows, CLIENTS_SCHEMA)
    write_json_atomically(path / "environment.json", environment(seeds, asked.partition.name, method))
    write_json_atomically(path / "partition.json", {str(seed): partition(seed, clients) for seed in seeds})
    for seed in seeds if outcomes else ():
        write_points(
            seed_file(path, OUTCOMES_FOLDER, seed), dict.fromkeys(POINTS, shared_outcomes(level, seed, clients))
        )
    if done is None:
        write_json_atomically(path / "summary.json", summarise(Records(path), warnings))
    return path


def timing(seed: int, number: int, rng: np.random.Generator) -> dict[str, Any]:
    train, evaluate = 0.9 + rng.normal(0, 0.02), 0.25
    parts = {"train": train, "comm": 0.05, "server": 0.11, "eval": evaluate, "log": 0.02}
    return {
        "seed": seed,
        "exchange": number,
        **parts,
        "total": sum(parts.values()),
        "cpu": 2 * train,
        "host_busy": [0.9, 0.88],
        "rss_mb": 900,
    }


def environment(seeds: Sequence[int], scheme: str, method: str) -> dict[str, Any]:
    traces = methods.load(method).traces if method in methods.names() else ()
    return {
        "traces": [asdict(trace) for trace in traces],
        "versions": {"python": "3.11.9", "torch": "2.11.0", "fedbench": "0.1.0"},
        "machine": {"cpu": "2 cores", "memory_gb": 24},
        "git": {"commit": "0123abc", "dirty": False},
        "partition_fingerprint": {str(seed): f"{seed:02d}" * 32 for seed in seeds},
        "partition_headline": SCHEMES.load(scheme).headline,
        "started": "2026-01-01T10:00:00",
        "finished": "2026-01-01T10:04:00",
    }


def is_pooled(method: str) -> bool:
    """Whether a built-in method trains on pooled data; a synthetic one does not."""
    if method not in methods.names():
        return False
    kind = methods.load(method)
    return kind.trainers(kind.Options()) == "pooled"


def partition(seed: int, clients: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = (rng.dirichlet([0.3] * CLASSES, clients) * 140).round().astype(int).tolist()
    return {"clients": [{"train": [0, 1], "val": [2], "test": [3]}] * clients, "class_counts": counts}


def add_lambda(
    path: Path, rounds: int = ROUNDS, seeds: Sequence[int] = (0, 1, 2), flipped: Sequence[int] = (0,)
) -> None:
    """Traces of fedmosaic: flipped clients shut the consensus out."""
    rows: list[tuple] = []
    for seed, number, client in product(seeds, range(2, rounds + 1), range(CLIENTS)):
        rng = np.random.default_rng([seed, number, client])
        end, pace = (0.02, 0.35) if client in flipped else (0.75 + 0.03 * client, 0.12)
        private = 1.4 * np.exp(-number / 9) + 0.15
        value = end + (1.0 - end) * np.exp(-pace * number) + rng.normal(0, 0.012)
        public = private * (1 - np.log(max(value, 1e-3)))
        found = {
            "lambda": max(value, 0),
            "loss_private": private,
            "loss_public": public,
            "agreement": 0.4 + 0.5 * value,
        }
        rows += [(seed, number, client, name, float(v)) for name, v in found.items()]
    write_traces(path, rows)


def add_masks(path: Path, rounds: int = ROUNDS, seeds: Sequence[int] = (0, 1, 2)) -> None:
    """Traces of fedcac: mask shares, per layer, overlap, collaborators."""
    layers = {"layers.0": 0.34, "layers.2": 0.52, "head": 0.81}
    rows: list[tuple] = []
    for seed, number, client in product(seeds, range(1, rounds + 1), range(CLIENTS)):
        rng = np.random.default_rng([seed, number, client])
        rows.append((seed, number, client, "critical_share", 0.5 + rng.normal(0, 0.01)))
        rows += [(seed, number, client, f"critical_share/{k}", v + rng.normal(0, 0.01)) for k, v in layers.items()]
        rows += [(seed, number, -1, f"mask_agreement/{k}", v) for k, v in layers.items()]
        rows.append((seed, number, client, "collaborators", float(max(0, 9 - number // 4 + client % 3))))
        for other in set(range(CLIENTS)) - {client}:
            near = 0.9 if (client - other) % 3 == 0 else 0.62
            rows.append((seed, number, client, f"overlap/{other}", near + rng.normal(0, 0.02)))
    write_traces(path, rows)


def add_newcomers(path: Path, level: float, seeds: Sequence[int] = (0, 1, 2)) -> None:
    """Two newcomers per seed, who gain 0.1 per epoch from `level` - 0.2 on, and 0.1 less with one image."""
    cases = [(0, 0, level - 0.2), (1, 0, level - 0.1), (2, 0, level), (2, 1, level - 0.1)]
    rows = [
        (seed, CLIENTS + client, epochs, images, "accuracy", value + 0.01 * seed + 0.02 * client, 100)
        for seed, client, (epochs, images, value) in product(seeds, range(2), cases)
    ]
    columns = dict(zip(NEWCOMERS_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
    write_parquet_atomically(path / "newcomers.parquet", columns, NEWCOMERS_SCHEMA)


def write_traces(path: Path, rows: list[tuple]) -> None:
    columns = dict(zip(TRACES_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True))
    write_parquet_atomically(path / "traces.parquet", columns, TRACES_SCHEMA)


def write_grid(
    path: Path,
    method: str = "fedcac",
    gain: float = 0.05,
    seeds: Sequence[int] = (0, 1, 2),
    space: dict[str, list[Any]] | None = None,
    fail: Sequence[int] = (),
    skew: float = 0.0,
    final: bool = True,
    masks: bool = False,
    error: str = "RuntimeError: client 3: loss is nan",
    ends: dict[str, list[str]] | None = None,
) -> Path:
    """A grid whose winner is `gain` above local; cells at the indices in `fail` failed."""
    path.mkdir(parents=True, exist_ok=True)
    space = space or {"method.tau": [0.1, 0.3, 0.5, 0.7], "method.beta": [5, 10, 20], "train.lr": [0.01, 0.05]}
    points = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    tried = [point(method, values, error if i in fail else None) for i, values in enumerate(points)]
    done = [entry for entry in tried if entry.status == "done"]
    best = max(done, key=lambda entry: entry.scores["val"] or 0.0).values if done else None
    levels = {method: 0.80 + gain, "local": 0.80, "centralized": 0.9, "fedavg-ft": 0.80 + gain / 3}
    finals = []
    if best is not None:
        finals = [Entry("final", name, {}, 0, f"final/{name}", "done") for name in levels]
    if final and best is not None:
        for name, level in levels.items():
            chosen = {key.partition(".")[2]: v for key, v in best.items() if key.startswith("method.")}
            shift = skew if name == method else 0.0
            fit = level - 0.02 if name == method else level
            write_run(path / "final" / name, name, level, fit, seeds, skew=shift)
            if name == method:
                set_method(path / "final" / name, {"name": name, **chosen})
            if name == method and masks:
                add_masks(path / "final" / name, seeds=seeds)
    config = Config(method=method, rounds=ROUNDS, seeds=list(seeds)).model_dump(mode="json")
    # Baselines had as many points, each of its own space.
    others = [tuned(name, {"train.lr": 0.01 * (i + 1)}) for name in levels if name != method for i in range(len(tried))]
    plan = Plan("grid", method, config, [*tried, *others, *finals], {method: space})
    plan.choices = {} if best is None else {method: best, **{n: {"train.lr": 0.02} for n in levels if n != method}}
    plan.ends, plan.references = ends or {}, [name for name in levels if is_pooled(name)]
    plan.write(path)
    return path


def tuned(label: str, values: dict[str, Any], score: float = 0.8) -> Entry:
    """A point that was tried."""
    scores = {"val": score, "test": score}
    return Entry("candidate", label, values, 0, f"run/{label}-{values}", "done", None, scores)


def shared_outcomes(level: float, seed: int, clients: int) -> dict[str, np.ndarray]:
    """Of five rows of each client, the same in every seed; some are easier for methods of this level than others."""
    rows = np.arange(5 * clients)
    ease = np.random.default_rng(round(1000 * level)).normal(level, 0.3, len(rows))
    values = ease + np.random.default_rng(seed).normal(0, 0.2, len(rows))
    return join(
        {c: {"rows": rows[5 * c : 5 * c + 5], "each/accuracy": values[5 * c : 5 * c + 5]} for c in range(clients)}
    )


def write_comparison(
    path: Path,
    levels: dict[str, float],
    seeds: Sequence[int] = (0, 1, 2),
    spread: float = 0.01,
    asked: dict[str, dict[str, Any]] | None = None,
    fail: dict[str, Sequence[int]] | None = None,
    **more: Any,
) -> Path:
    """A comparison of methods with these levels of accuracy, each tuned over three points.

    asked: what is asked of all ("") or of some methods only. fail: seeds by method whose final run failed in round 3.
    more: of its plan, which has a job per seed for a sequential test.
    """
    asked = asked or {}
    path.mkdir(parents=True, exist_ok=True)
    entries = [tuned(name, {"train.lr": lr}, level - 0.1 * i) for name, level in levels.items() for i, lr in RATES]
    for name, level in levels.items():
        keys = {**asked.get("", {}), **asked.get(name, {})}
        failed = (fail or {}).get(name, ())
        for own in [[seed] for seed in seeds] if failed else [seeds]:
            place, done = f"final/{name}{own[0] if failed else ''}", 2 if own[0] in failed else None
            write_run(path / place, name.partition(" ")[0], level, level - 0.05, own, spread=spread, done=done, **keys)
            status, error = ("failed", "RuntimeError: boom") if done else ("done", None)
            jobs = own if "stopping_rule" in more else own[:1]
            entries += [Entry("final", name, {"train.lr": 0.01}, seed, place, status, error) for seed in jobs]
    config = Config(rounds=ROUNDS, seeds=list(seeds)).model_dump(mode="json")
    plan = Plan("compare", None, config, entries, {name: {"train.lr": [0.01, 0.1, 1.0]} for name in levels})
    plan.choices = {name: {"train.lr": 0.01} for name in levels}
    plan.references = [name for name in levels if is_pooled(name.partition(" ")[0])]
    replace(plan, **more).write(path)
    return path


RATES = list(enumerate([0.01, 0.1, 1.0]))


def set_method(path: Path, request: dict[str, Any]) -> None:
    tree = yaml.safe_load((path / "config.yaml").read_text())
    write_atomically(path / "config.yaml", yaml.safe_dump({**tree, "method": request}, sort_keys=False))


def point(method: str, values: dict[str, Any], error: str | None) -> Entry:
    numbers = [float(v) for v in values.values() if isinstance(v, (int, float))]
    score = 0.84 - 0.15 * abs(numbers[0] - 0.3) - 0.002 * abs(sum(numbers[1:2]) - 10) - 0.3 * sum(numbers[2:3])
    entry = Entry("candidate", method, values, 0, "run/" + "-".join(map(str, values.values())))
    if error:
        return replace(entry, status="failed", error=error)
    return replace(entry, status="done", scores={"val": score, "test": score - 0.01})


@pytest.fixture(scope="session")
def a_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of three keys, complete but for its first cell, which failed; its runs recorded masks."""
    return write_grid(tmp_path_factory.mktemp("study") / "grid", fail=(0,), masks=True)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run into `tmp_path/NAME` (default run)."""
    return lambda name="run", **options: write_run(tmp_path / name, **options)


@pytest.fixture
def make_comparison(tmp_path: Path) -> Callable[..., Path]:
    return lambda levels, name="compare", **options: write_comparison(tmp_path / name, levels, **options)


@pytest.fixture
def make_grid(tmp_path: Path) -> Callable[..., Path]:
    return lambda name="grid", **options: write_grid(tmp_path / name, **options)


@pytest.fixture
def with_lambda() -> Callable[..., None]:
    return add_lambda


@pytest.fixture
def with_masks() -> Callable[..., None]:
    return add_masks


@pytest.fixture(scope="module")
def grid_page(a_grid: Path) -> Page:
    return page_of(a_grid)


@pytest.fixture
def sequential(make_comparison):
    """A comparison that added seeds until it was decided, with a margin of some points."""

    def make(margin: float = 2.0, seeds: int = 8, most: int = 8, **more) -> Study:
        levels = more.pop("levels", {"local": 0.6, "fedper": 0.7, "fedcac": 0.8, "centralized": 0.95})
        options = {"spread": 0.01, **more, "stopping_rule": {"margin": margin, "most": most}}
        return Study.load(make_comparison(levels, seeds=tuple(range(seeds)), **options))

    return make


def judged(survey: SettingsStudy, *settings: str, test: SequentialTest | None = None, **plan: Any) -> SettingsStudy:
    """A study over settings with another sequential test, or another plan, in these settings."""
    studies = dict(survey.begun)
    for name in settings:
        studies[name] = study = copy(studies[name])
        study.plan = replace(study.plan, **plan)
        study.__dict__["sequential_test"] = test or study.sequential_test
    return replace(survey, begun=studies)
