"""How often the intervals of a comparison hold the truth, by simulation of known truth.

    python benchmarks/coverage.py [--repeats 2000] [--part seeds rows]

seeds: a difference of a client is the truth, plus what its seed adds (partition, start, server), plus its own noise.
Shapes: a normal seed effect, a skewed one (exponential), none at all, and one seed in ten that is an outlier. rows:
outcomes on test rows that seeds share (`test_rows.py`), intervals over seeds alone and over seeds and test samples.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.test_rows import EVEN, HOSPITALS, LARGE, Design, Population, differences, truth
from fedbench.results.contrasts import resampled_intervals
from fedbench.results.sample_error import deviations, sample_error
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


LEAD = 0.3
"""How much better the first method is, in log odds."""
SPREADS, SEEDS = (0.0, 1.0, 2.0), (3, 5, 12)
DESIGNS = {
    "116, 84, 66, 50, 34, 22, 12, 6": [Design(HOSPITALS, spread) for spread in SPREADS],
    "10 clients of 36": [Design(EVEN, spread) for spread in SPREADS],
    "20 clients of 200": [Design(LARGE, 2.0)],
    "116 ... 6, dealt anew": [Design(HOSPITALS, spread, "dealt") for spread in SPREADS],
    "10 of 36, dealt anew": [Design(EVEN, spread, "dealt") for spread in SPREADS],
    "10 of 36, drawn from 180 each": [Design(EVEN, spread, "drawn") for spread in SPREADS],
    "10 of 36 in groups of 4": [Design(EVEN, spread, group=4) for spread in SPREADS],
    "AUROC, 10 of 36, 3 positive": [Design(EVEN, spread, positives=0.08) for spread in SPREADS],
    "AUROC, 116 ... 6, 2 to 12 positive": [Design(HOSPITALS, spread, positives=0.1) for spread in SPREADS],
}


def coverage_of_rows(design: Design, repeats: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Of 3, 5 and 12 seeds: the share of repeats whose interval holds the truth, and half the width.

    Over seeds, and over seeds and samples. Widths are medians.
    """
    true = truth(design, LEAD)
    hits, halves = ({seeds: np.zeros((repeats, 2)) for seeds in SEEDS} for _ in range(2))
    for repeat in range(repeats):
        draw = np.random.default_rng([repeat, len(design.sizes), round(10 * design.spread), design.group])
        each = differences(Population(design, 2, draw, LEAD), max(SEEDS))
        moved, means = [deviations(found, gains) for _, found, gains in each], [mean for mean, _, _ in each]
        for seeds in SEEDS:
            values, error = means[:seeds], sample_error(moved[:seeds])
            for place, found in enumerate((interval(values), interval(values, samples=error))):
                hits[seeds][repeat, place] = (found.low or 0) <= true <= (found.high or 0)
                halves[seeds][repeat, place] = found.half or 0
    return {seeds: (hits[seeds].mean(0), np.median(halves[seeds], axis=0)) for seeds in SEEDS}


def rows_part(repeats: int) -> None:
    print("| clients' test rows | spread | seeds | seeds alone | seeds and samples | half width, points |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, designs in DESIGNS.items():
        for design in designs:
            for seeds, (hits, halves) in coverage_of_rows(design, repeats).items():
                numbers = f"{100 * hits[0]:.1f} | {100 * hits[1]:.1f} | {100 * halves[0]:.1f} → {100 * halves[1]:.1f}"
                print(f"| {name} | {design.spread:g} | {seeds} | {numbers} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--part", nargs="+", default=["seeds", "rows"], choices=["seeds", "rows"])
    asked = parser.parse_args()
    if "seeds" in asked.part:
        seeds_part(asked.repeats)
    if "rows" in asked.part:
        rows_part(asked.repeats)


def seeds_part(repeats: int) -> None:
    print("| seed effect | seeds | Student t | resampled |\n| --- | --- | --- | --- |")
    for shape in SHAPES:
        for seeds in (3, 5, 10):
            by_seed, by_draws = coverage(shape, seeds, repeats)
            print(f"| {shape} | {seeds} | {100 * by_seed:.1f} | {100 * by_draws:.1f} |", flush=True)


if __name__ == "__main__":
    main()
