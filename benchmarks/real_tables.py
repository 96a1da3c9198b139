"""How often intervals hold on real tables, whose truth is known from a large part held out.

    python benchmarks/real_tables.py --pictures FOLDER [--tables 12] [--seeds 10] [--data fmnist mnist]
        [--metric accuracy auroc] [--out DIR]

A table has 1,000 pictures of Fashion-MNIST or MNIST as 49 numbers, in eight hospitals of 290 to 25 rows, each with a
mixture of classes of its own. Every table is another draw, its rows in another order. Local training, FedPer and
FedAvg-FT run on it, each seed drawing a fifth of the rows for testing, and every personal model is then asked about
half of all pictures, which no table has. The truth of a study is the mean over all seeds of its table on these. Studies
are 5 seeds of a table, or all. `drawn`: the runs' own test rows; `published`: the same models on as many rows drawn
once from the other half, the same in every seed. For AUROC the question is class 6 (shirts, sixes) against the rest.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fedbench import Config, run
from fedbench.results.outcomes import MetricOutcomes
from fedbench.results.reader import Records
from fedbench.results.sample_error import deviations, sample_error
from fedbench.results.statistics import interval
from fedbench.studies.export import Program
from fedbench.studies.load import kept_learner
from fedbench.tasks.outcomes import auroc_without, pseudo_values

SIZES = (290, 210, 165, 125, 85, 55, 45, 25)
METHODS = ("local", "fedper", "fedavg-ft")
POSITIVE, POINT, SUBSETS = 6, "after_agg", 20
COLUMNS = (
    *("set", "test rows", "seeds", "studies", "over seeds alone", "over seeds and samples"),
    *("half width, points", "excludes 0 on the wrong side", "opposite on two halves"),
)
STUDY = 5
"""Seeds of a small study."""


def pictures(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All pictures in IDX files, as the means of 4 x 4 pixels `[n, 49]`, and their classes `[n]`."""
    samples, labels = [], []
    for part in ("train", "t10k"):
        pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
        grid = np.frombuffer(pixels, np.uint8).reshape(-1, 7, 4, 7, 4).mean((2, 4))
        samples.append(grid.reshape(-1, 49).astype(np.float32))
        labels.append(
            np.frombuffer(gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
        )
    return np.concatenate(samples), np.concatenate(labels).astype(np.int64)


@dataclass(frozen=True)
class World:
    """A set whose even rows are drawn for tables and whose odd rows are held out. shares: of classes, by hospital."""

    samples: np.ndarray
    labels: np.ndarray
    shares: np.ndarray
    metric: str

    @classmethod
    def of(cls, folder: Path, metric: str) -> "World":
        samples, labels = pictures(folder)
        order = np.random.default_rng(0).permutation(len(labels))
        shares = np.random.default_rng(1).dirichlet(np.full(10, 0.5), len(SIZES))
        if metric == "auroc":
            shares[:, POSITIVE] = 0
            shares *= 0.88 / shares.sum(1, keepdims=True)
            shares[:, POSITIVE] = 0.12
        return cls(samples[order], labels[order], shares, metric)

    def draw(self, start: int, sizes: Sequence[int], draw: np.random.Generator) -> list[np.ndarray]:
        """Rows of every hospital by its shares, none twice; of the even rows (start 0) or of the odd ones (1)."""
        free = {c: list(draw.permutation(np.flatnonzero(self.labels[start::2] == c) * 2 + start)) for c in range(10)}
        drawn = []
        for size, own in zip(sizes, self.shares, strict=True):
            counts = np.floor(own * size + draw.random()).astype(int)
            counts[own.argmax()] += size - counts.sum()
            drawn.append(np.array([free[c].pop() for c in range(10) for _ in range(min(counts[c], len(free[c])))]))
        return drawn

    def targets(self, rows: np.ndarray) -> np.ndarray:
        own = self.labels[rows]
        return (own == POSITIVE).astype(np.int64) if self.metric == "auroc" else own

    def held_out(self) -> np.ndarray:
        return np.arange(1, len(self.labels), 2)

    def true_score(self, hospital: int, outputs: np.ndarray) -> float:
        """The score of a model at a hospital from its outputs `[n]` on all rows held out, weighted by class."""
        rows = self.held_out()
        classes = np.bincount(self.labels[rows], minlength=10)
        weights = (self.shares[hospital] / classes)[self.labels[rows]]
        if self.metric == "auroc":
            return float(roc_auc_score(self.targets(rows), outputs, sample_weight=weights))
        return float(np.average(outputs, weights=weights))


def outputs_of(program: torch.nn.Module, world: World) -> np.ndarray:
    """Of a model on the rows held out: whether it is right, or for AUROC its margin."""
    rows = world.held_out()
    with torch.no_grad():
        logits = program(torch.from_numpy(world.samples[rows])).double().numpy()
    if world.metric == "auroc":
        return logits[:, 1] - logits[:, 0] if logits.ndim == 2 else logits
    return (logits.argmax(1) == world.labels[rows]).astype(float)


Scored = tuple[MetricOutcomes, dict[int, float]]
"""The outcomes of a seed's test rows, and the scores of its clients."""


@dataclass(frozen=True)
class Study:
    """What the runs of one method on a table gave, by seed: on their own test rows, and on those held out.

    outputs: `[clients, n]`.
    """

    drawn: Mapping[int, Scored]
    outputs: Mapping[int, np.ndarray]


def table(world: World, name: str, number: int, seeds: Sequence[int], out: Path) -> dict[str, Study]:
    """Runs the methods on a table."""
    parts = world.draw(0, SIZES, np.random.default_rng([2, number]))
    order = np.random.default_rng([3, number]).permutation(sum(map(len, parts)))
    rows, users = np.concatenate(parts)[order], np.repeat(np.arange(len(parts)), [*map(len, parts)])[order]
    data = (world.samples[rows], world.targets(rows), users)
    studies = {}
    for method in METHODS:
        config: dict[str, Any] = {
            "data": {"name": data, "val": 0},
            "partition": {"name": "natural", "min_samples": 1},
            "method": method,
            "model": "mlp",
            "rounds": 20,
            "evaluate": {"every": 20, "metrics": [world.metric]},
            "train": {"lr": 0.05, "epochs": 2},
            "seeds": [*seeds],
            "save_models": True,
            "resources": {"hosts": 0},
            "out": str(out / f"{name}-{world.metric}-{number}-{method}"),
        }
        folder = run(Config.of(config), report=False).folder
        records = Records(folder)
        clients = records.clients()
        clients, score = clients[clients["point"] == POINT], f"test_{world.metric}"
        scores = {
            int(str(seed)): dict(zip(own["client"].astype(int), own[score].astype(float), strict=True))
            for seed, own in clients.dropna(subset=[score]).groupby("seed")
        }
        kept = records.outcomes()
        outputs = {}
        for seed in seeds:
            learned = [kept_learner(folder, client, seed, POINT) for client in range(len(SIZES))]
            outputs[seed] = np.stack([outputs_of(Program(learner, of.dataset), world) for of, learner in learned])
        studies[method] = Study({seed: (kept[seed, POINT], scores[seed]) for seed in seeds}, outputs)
    return studies


Seed = tuple[float, MetricOutcomes, dict[int, float]]
"""The difference of two methods in a seed, its outcomes, and its clients' differences."""


def difference(one: Scored, other: Scored) -> Seed:
    (ours, gains), (theirs, less) = one, other
    assert np.array_equal(ours.rows, theirs.rows)
    scored = {client: gains[client] - less[client] for client in gains.keys() & less.keys()}
    both = MetricOutcomes(ours.clients, ours.rows, ours.units, ours.values - theirs.values)
    return float(np.mean([*scored.values()])), both, dict(sorted(scored.items()))


def published(world: World, study: Study, rows: Sequence[np.ndarray]) -> dict[int, Scored]:
    """The outcomes of a study's models on these rows of its hospitals, the same in every seed."""
    whole, clients = np.concatenate(rows), np.repeat(np.arange(len(rows)), [*map(len, rows)])
    seeds = {}
    for seed, outputs in study.outputs.items():
        values, scores = [], {}
        for client, own in enumerate(rows):
            given = outputs[client, own // 2]
            if world.metric == "auroc":
                score, without = auroc_without(given, world.targets(own).astype(bool))
                values.append(pseudo_values(score, without))
            else:
                score, without = float(given.mean()), given
                values.append(given)
            if not np.isnan(score):
                scores[client] = float(score)
        seeds[seed] = MetricOutcomes(clients, whole, whole, np.concatenate(values)), scores
    return seeds


@dataclass
class Count:
    """How often intervals over seeds alone, and over seeds and samples, held the truth, and their half widths."""

    hits: list[tuple[bool, bool]]
    halves: list[tuple[float, float]]
    verdicts: list[tuple[bool, bool]]
    """Whether the interval excludes 0 on the wrong side."""

    def add(self, seeds: Sequence[Seed], true: float) -> None:
        means = [mean for mean, _, _ in seeds]
        error = sample_error([deviations(outcomes, gains) for _, outcomes, gains in seeds])
        both = interval(means), interval(means, samples=error)
        self.hits.append(tuple((i.low or 0) <= true <= (i.high or 0) for i in both))  # type: ignore[arg-type]
        self.halves.append(tuple(100 * (i.half or 0) for i in both))  # type: ignore[arg-type]
        self.verdicts.append(tuple(_sign(i) * true < 0 for i in both))  # type: ignore[arg-type]

    def shown(self) -> list[str]:
        hits, halves, wrong = (np.mean(own, axis=0) for own in (self.hits, self.halves, self.verdicts))
        return [f"{100 * hits[0]:.1f}", f"{100 * hits[1]:.1f}", arrow(halves), arrow(100 * wrong)]


def _sign(found: Any) -> int:
    return 1 if (found.low or 0) > 0 else -1 if (found.high or 0) < 0 else 0


def halves_of(seeds: Sequence[Seed]) -> tuple[bool, bool]:
    """Whether intervals on two halves of the rows tell opposite signs: over seeds alone, and over seeds and samples."""
    signs = []
    for half in (0, 1):
        means, moved = [], []
        for _, both, gains in seeds:
            side = np.arange(len(both.rows)) % 2 == half
            values = MetricOutcomes(both.clients[side], both.rows[side], both.units[side], both.values[side])
            known = ~np.isnan(values.values)
            own = {c: values.values[known & (values.clients == c)] for c in gains}
            scores = {c: float(given.mean()) for c, given in own.items() if len(given)}
            means.append(float(np.mean([*scores.values()])))
            moved.append(deviations(values, scores))
        signs.append((_sign(interval(means)), _sign(interval(means, samples=sample_error(moved)))))
    return signs[0][0] * signs[1][0] < 0, signs[0][1] * signs[1][1] < 0


def studies_of(seeds: Sequence[int]) -> Iterator[Sequence[int]]:
    """Runs of five seeds, and all of them."""
    for start in range(0, len(seeds) - STUDY + 1, STUDY):
        yield seeds[start : start + STUDY]
    yield seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, required=True, help="a folder with fmnist and mnist in IDX files")
    parser.add_argument("--tables", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", default=["fmnist", "mnist"], choices=["fmnist", "mnist"])
    parser.add_argument("--metric", nargs="+", default=["accuracy", "auroc"], choices=["accuracy", "auroc"])
    parser.add_argument("--out", type=Path, default=Path("results/real_tables"))
    asked = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n| --- | --- |{' ---: |' * (len(COLUMNS) - 2)}")
    for name in asked.data:
        for metric in asked.metric:
            world = World.of(asked.pictures / name, metric)
            counts: dict[tuple[str, int], Count] = {}
            opposite: dict[int, list[tuple[bool, bool]]] = {}
            for number in range(asked.tables):
                studied = table(world, name, number, range(asked.seeds), asked.out)
                judge(world, number, studied, range(asked.seeds), counts, opposite)
            for (kind, seeds), count in sorted(counts.items()):
                line = [f"{name}, {metric}", kind, str(seeds), str(len(count.hits)), *count.shown()]
                line += [arrow(100 * np.mean(opposite[seeds], axis=0))] if kind == "published" else [""]
                print(f"| {' | '.join(line)} |", flush=True)


def arrow(pair: np.ndarray) -> str:
    return f"{pair[0]:.1f} → {pair[1]:.1f}"


def judge(
    world: World,
    number: int,
    studied: Mapping[str, Study],
    seeds: Sequence[int],
    counts: dict[tuple[str, int], Count],
    opposite: dict[int, list[tuple[bool, bool]]],
) -> None:
    """Adds a table's studies to the counts. The truth is the mean over its seeds on the rows held out."""
    true = {
        method: np.array([[world.true_score(c, own[c]) for c in range(len(SIZES))] for own in study.outputs.values()])
        for method, study in studied.items()
    }
    sizes = [size // 5 for size in SIZES]
    subsets = [world.draw(1, sizes, np.random.default_rng([4, number, place])) for place in range(SUBSETS)]
    fixed = {method: [published(world, study, rows) for rows in subsets] for method, study in studied.items()}
    for one, other in combinations(METHODS, 2):
        gain = true[one] - true[other]  # [seeds, clients]
        for chosen in studies_of(seeds):
            drawn = [difference(studied[one].drawn[s], studied[other].drawn[s]) for s in chosen]
            scored = [sorted(gains) for _, _, gains in drawn]
            known = float(np.mean([gain[:, own].mean() for own in scored]))  # of the clients with a score
            counts.setdefault(("drawn", len(chosen)), Count([], [], [])).add(drawn, known)
            for a, b in zip(fixed[one], fixed[other], strict=True):
                same = [difference(a[s], b[s]) for s in chosen]
                known = float(gain[:, sorted(same[0][2])].mean())
                counts.setdefault(("published", len(chosen)), Count([], [], [])).add(same, known)
                opposite.setdefault(len(chosen), []).append(halves_of(same))


if __name__ == "__main__":
    main()
