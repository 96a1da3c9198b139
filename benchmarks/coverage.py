"""How often the intervals of a comparison hold the truth, by simulation of known truth.

    python benchmarks/coverage.py [--repeats 2000]

A difference of a client is the truth, plus what its seed adds (partition, start, server), plus its own noise. Shapes: a
normal seed effect, a skewed one (exponential), none at all, and one seed in ten that is an outlier.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from fedbench.results.contrasts import resampled_intervals
from fedbench.results.statistics import interval

TRUTH, SEED_SPREAD, CLIENT_SPREAD, CLIENTS, DRAWS = 0.02, 0.01, 0.05, 20, 1000
SHAPES = {
    "normal": lambda draw, n: draw.normal(0, SEED_SPREAD, n),
    "skewed": lambda draw, n: draw.exponential(SEED_SPREAD, n) - SEED_SPREAD,
    "no seed effect": lambda draw, n: np.zeros(n),
    "one in ten an outlier": lambda draw, n: np.where(draw.random(n) < 0.1, 9, -1) * SEED_SPREAD,
}


def coverage(shape: str, seeds: int, repeats: int) -> tuple[float, float]:
    """The share of repeats whose interval over seeds, and over resampled seeds and clients, holds the truth."""
    draw, hits = np.random.default_rng(0), np.zeros(2)
    for _ in range(repeats):
        effects = SHAPES[shape](draw, seeds)
        data = [TRUTH + effect + draw.normal(0, CLIENT_SPREAD, CLIENTS) for effect in effects]
        found = interval([own.mean() for own in data])
        low, high = resampled_intervals([data], DRAWS)[0] or (0, 0)
        hits += [(found.low or 0) <= TRUTH <= (found.high or 0), low <= TRUTH <= high]
    return float(hits[0] / repeats), float(hits[1] / repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    repeats = parser.parse_args().repeats
    print("| seed effect | seeds | Student t | resampled |\n| --- | --- | --- | --- |")
    for shape in SHAPES:
        for seeds in (3, 5, 10):
            by_seed, by_draws = coverage(shape, seeds, repeats)
            print(f"| {shape} | {seeds} | {100 * by_seed:.1f} | {100 * by_draws:.1f} |", flush=True)


if __name__ == "__main__":
    main()
