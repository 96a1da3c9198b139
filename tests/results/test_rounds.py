"""The last and the best round of runs."""

from pathlib import Path

from fedbench.results import files
from fedbench.results.reader import Records
from fedbench.results.rounds import at_best_round, at_last_round
from tests.results.lines import line


def test_a_run_that_diverged_has_no_last_round(folder: Path) -> None:
    """Its last good round is no end; the best round is another question."""
    scores = {0: (0.5, 0.4, float("nan")), 1: (0.5, 0.4, 0.3)}
    lines = [line(seed, i, "after_agg", v, v) for seed, own in scores.items() for i, v in enumerate(own, 1)]
    files.append_lines(folder / "metrics.jsonl", lines)
    run = Records(folder)
    last, best = (of(run.metrics(), run.metric()) for of in (at_last_round, at_best_round))
    assert last[["seed", "round"]].to_numpy().tolist() == [[1, 3]]
    assert best[["seed", "round"]].to_numpy().tolist() == [[0, 1], [1, 1]]
