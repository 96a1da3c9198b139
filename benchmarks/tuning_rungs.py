"""What tuning loses and saves if poor candidates stop after a part of their rounds.

    python benchmarks/tuning_rungs.py --pictures FOLDER [--out DIR] [--data digits fmnist usps cancer]
        [--methods fedrep pfedme flute ditto fedavg-ft local fedcac apfl]

FOLDER has the IDX files of Fashion-MNIST and USPS in `fmnist` and `usps`. Six candidates of each method, as
`fedbench compare` tries them, run to the end on the three tuning seeds, on 1,000 pictures as numbers or on a table of
569 patients, dealt to four clients. Rules are then replayed on these curves, for every order of the seeds. The worth
of a candidate is its accuracy after the last round, on validation or on test samples, as a mean over all seeds; the
loss of a rule is the worth of what is chosen if all run to the end, minus that of what the rule chooses. What is in DIR
already is not run again.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import ceil
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fedbench import Config
from fedbench.config.tuning import TUNE_SEEDS
from fedbench.jobs.job import Job
from fedbench.jobs.resolve import resolve
from fedbench.jobs.run_job import run_job
from fedbench.results.reader import Records
from fedbench.studies.compared_methods import ComparedMethod
from fedbench.studies.space import Space

METHODS = ("fedrep", "pfedme", "flute", "ditto", "fedavg-ft", "local", "fedcac", "apfl")
ROUNDS, EVERY, POINTS, ROWS = 24, 4, 6, 1000


def numbers(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a data set as rows of numbers, and their classes."""
    from sklearn.datasets import load_breast_cancer, load_digits

    if name in ("digits", "cancer"):
        samples, labels = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    else:
        pixels, labels = (
            np.frombuffer(gzip.decompress((folder / name / f"train-{part}-ubyte.gz").read_bytes())[skip:], np.uint8)
            for part, skip in (("images-idx3", 16), ("labels-idx1", 8))
        )
        samples = pixels.reshape(len(labels), -1)
        if name == "fmnist":  # means of 4 x 4 pixels
            samples = samples.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49)
    chosen = np.random.default_rng(0).permutation(len(labels))[:ROWS]
    return samples[chosen].astype(np.float32), labels[chosen].astype(np.int64)


def curves(name: str, method: str, folder: Path, out: Path) -> np.ndarray:
    """Accuracy of every candidate, `[points, seeds, evaluations, 2]`: on validation and on test samples."""
    config = Config.of(
        {
            "data": {"name": numbers(name, folder), "val": 0.5},
            "partition": {"clients": 4},
            "method": method,
            "model": "mlp",
            "rounds": ROUNDS,
            "evaluate": {"every": EVERY},
            "resources": {"hosts": 0},
            "loggers": [],
        }
    )
    compared = ComparedMethod(method, method).tuned_over(Space.of(method), config, POINTS)
    found = []
    for point in compared.points:
        for seed in TUNE_SEEDS:
            job = Job.of(resolve(compared.config(config, point)).config, seed, out / name, method)
            if job.outcome().status == "missing":
                run_job(job)
            frame = Records(job.folder).metrics()
            frame = frame[frame["point"] == "after_agg"].set_index("round").reindex(range(EVERY, ROUNDS + 1, EVERY))
            found.append(frame[["val_accuracy", "test_accuracy"]].to_numpy())  # NaN from where a run has failed
    return np.array(found).reshape(len(compared.points), len(TUNE_SEEDS), -1, 2)


@dataclass(frozen=True)
class Rule:
    """share: of the rounds, after which only some candidates go on. goes_on: those, as a share of all.

    seeds: how many tuning seeds run up to there: the first, or all, each with the better half of those before. ends:
    whether the choice is made there, and nothing goes on.
    """

    name: str
    share: float = 1.0
    goes_on: float = 1.0
    seeds: int = 1
    ends: bool = False

    def choose(self, scores: np.ndarray) -> tuple[int, float]:
        """What is chosen by scores `[points, seeds, evaluations]`, and the rounds that it took, as whole runs."""
        count, most = scores.shape[:2]
        rung = ceil(self.share * scores.shape[2]) - 1
        part, left, ran = (rung + 1) / scores.shape[2], [*range(count)], np.zeros((count, most))
        for seed in range(self.seeds):
            left = best(scores[:, : seed + 1, rung].mean(1), left, halved(count, seed)) if seed else left
            ran[left, seed] = part
        if self.ends:
            return best(scores[:, : self.seeds, rung].mean(1), left, 1)[0], float(ran.sum())
        left = best(scores[:, : self.seeds, rung].mean(1), left, max(2, ceil(self.goes_on * count)))
        for seed in range(most):
            left = best(scores[:, :seed, -1].mean(1), left, halved(count, seed)) if seed else left
            ran[left, seed] = 1
        return best(scores[:, :, -1].mean(1), left, 1)[0], float(ran.sum())


def halved(count: int, seed: int) -> int:
    """The number of candidates that run on the tuning seed at this place."""
    return min(count, max(2, ceil(count / 2**seed)))


def best(scores: np.ndarray, among: Sequence[int], most: int) -> list[int]:
    """The best of some candidates, of equals the first."""
    return sorted(sorted(among), key=lambda point: -np.nan_to_num(scores[point], nan=-1))[:most]


def rules() -> Iterator[Rule]:
    yield Rule("all rounds")
    for text, share in (("1/2", 1 / 2), ("1/3", 1 / 3), ("1/6", 1 / 6)):
        yield Rule(f"{text} of the rounds, half goes on", share, 1 / 2)
        yield Rule(f"{text} of the rounds, a third goes on", share, 1 / 3)
    for text, share in (("1/2", 1 / 2), ("1/3", 1 / 3), ("1/6", 1 / 6)):
        yield Rule(f"{text} of the rounds on all seeds, a third goes on", share, 1 / 3, len(TUNE_SEEDS))
        yield Rule(f"{text} of the rounds on all seeds decides", share, 1 / 3, len(TUNE_SEEDS), ends=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/tuning-rungs"))
    parser.add_argument("--data", nargs="+", default=["digits", "fmnist", "usps", "cancer"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    asked = parser.parse_args()
    recorded = {
        (name, method): 100 * curves(name, method, asked.pictures, asked.out)
        for name in asked.data
        for method in asked.methods
    }
    columns = (
        "rounds saved, %",
        "other choice, %",
        "loss, validation",
        "loss, test",
        "worst method, validation",
        "test",
    )
    print(f"| rule | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    whole = Rule("all rounds")
    for rule in rules():
        saved, other = list[float](), list[bool]()
        losses: dict[str, list[np.ndarray]] = {method: [] for method in asked.methods}
        for (_, method), scores in recorded.items():
            worth = np.nan_to_num(scores[:, :, -1].mean(1))  # [points, 2]
            for order in permutations(range(len(TUNE_SEEDS))):
                known = scores[:, order][..., 0]
                (before, runs), (chosen, ran) = whole.choose(known), rule.choose(known)
                saved.append(1 - ran / runs)
                other.append(chosen != before)
                losses[method].append(worth[before] - worth[chosen])
        means = np.array([np.mean(own, axis=0) for own in losses.values()])
        worst = [f"{means[i, k]:.2f} ({asked.methods[i]})" for k, i in enumerate(means.argmax(0))]
        cells = [f"{100 * np.mean(saved):.0f}", f"{100 * np.mean(other):.0f}", *(f"{m:.2f}" for m in means.mean(0))]
        print(f"| {rule.name} | {' | '.join([*cells, *worst])} |", flush=True)


if __name__ == "__main__":
    main()
