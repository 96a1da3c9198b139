"""Proxies and what they stand for, read from made-up records, and how their orders agree."""

import pandas as pd
import pytest

from fedbench_papers.claims import proxies
from fedbench_papers.claims.judge import Terms, judge_row
from fedbench_papers.claims.verdicts import FAILS, HOLDS, UNDECIDED
from tests.papers.claims.made import frames


def over(names: list[str], values: dict) -> pd.Series:
    return pd.Series(values, dtype=float).rename_axis(names)


def test_a_rank_correlation_is_of_the_orders_within_a_seed():
    """Seed 0: 1 2 3 4 against 1 3 2 900, two neighbours swapped: 1 - 6 * 2 / (4 * 15) = 0.8. Seed 1: reversed."""
    first = over(["seed", "client"], {(seed, client): client for seed in (0, 1) for client in range(4)})
    other = over(["seed", "client"], {(0, 0): 1, (0, 1): 3, (0, 2): 2, (0, 3): 900, (1, 0): 9, (1, 1): 5, (1, 2): 1})
    found = proxies.rank_correlation(first, other)
    assert found.index.tolist() == [(0, -1), (1, -1)]
    assert found.tolist() == pytest.approx([0.8, -1.0]), "client 3 of seed 1 has no second number"


def test_the_last_level_is_correlated_and_a_constant_ranks_nothing():
    first = over(["seed", "client", "number"], {(0, c, n): n * (c < 2) for c in (0, 1, 2) for n in range(3)})
    other = over(["seed", "client", "number"], {(0, c, n): n if c else -n for c in (0, 1, 2) for n in range(3)})
    found = proxies.rank_correlation(first, other)
    assert found.to_dict() == pytest.approx({(0, 0): -1.0, (0, 1): 1.0, (0, 2): 0.0})


def test_a_trace_of_clients_over_all_or_the_last_rounds():
    rows = [(0, t, c, "x", t + 10 * c) for t in (1, 2, 6) for c in (0, 1)]
    runs = frames(agg={0: [0.5, 0.5]}, traces=rows)
    assert proxies.of_clients(runs, "agg", "x").to_dict() == {(0, 0): 3, (0, 1): 13}
    assert proxies.of_clients(runs, "agg", "x", last=2).to_dict() == {(0, 0): 4, (0, 1): 14}


def test_what_leaving_a_client_out_costs_the_others():
    whole = frames(agg={0: [0.5, 0.6, 0.7]}, fit={0: [0.9, 0.9, 0.9]})
    without = [
        frames(agg={0: [0.0, 0.5, 0.6]}, fit={0: [0.9, 0.9, 0.7]}),  # falls by 10 and 10
        frames(agg={0: [0.6, 0.0, 0.7]}),  # rises by 10, stays
        frames(agg={0: [0.5, 0.4, 0.0]}),  # stays, falls by 20
    ]
    found = proxies.leaving_out([whole, *without], "agg")
    assert found.to_dict() == pytest.approx({(0, 0): 10, (0, 1): -5, (0, 2): 10})
    assert proxies.leaving_out([whole, without[0]], "fit").to_dict() == pytest.approx({(0, 0): 10})


def test_a_larger_loss_is_a_worse_score():
    found = proxies.leaving_out(
        [frames(agg={0: [0.5, 0.5]}, test_losses={0: own}) for own in ([1.0, 1.0], [9.0, 1.5])], "agg", loss=True
    )
    assert found.to_dict() == pytest.approx({(0, 0): 0.5})


def test_a_score_is_the_mean_over_the_last_evaluated_rounds():
    runs, rounds = frames(agg={0: [0.5]}), {1: 0.1, 5: 0.4, 6: 0.8}
    rows = [
        dict(seed=0, round=t, client=0, point=point, test_accuracy=value, test_loss=t)
        for t, value in rounds.items()
        for point in ("after_agg", "after_fit")
    ]
    runs.clients = pd.DataFrame(rows).query("point == 'after_agg' or round == 1")
    assert proxies.score(runs, "agg").to_dict() == pytest.approx({(0, 0): 80})
    assert proxies.score(runs, "agg", last=2).to_dict() == pytest.approx({(0, 0): 60})
    assert proxies.score(runs, "agg", loss=True, last=2).to_dict() == pytest.approx({(0, 0): -5.5})
    assert proxies.score(runs, "fit", last=2).to_dict() == pytest.approx({(0, 0): 10})


def test_the_best_of_several_options_of_a_client():
    options = [{0: [0.5, 0.9, 0.2]}, {0: [0.6, 0.8, 0.2]}, {0: [0.6, 0.7, 0.1]}]
    runs = [frames(agg=own, test_losses={0: [1.0, 1.0 + n, 3.0 - n]}) for n, own in enumerate(options)]
    found = proxies.best_value(runs, "agg", [0.0, 1.0, 3.0])
    assert found.to_dict() == {(0, 0): 2.0, (0, 1): 0.0, (0, 2): 0.5}, "the mean of equally good ones"
    found = proxies.best_value(runs, "agg", [0.0, 1.0, 3.0], loss=True)
    assert found.to_dict() == pytest.approx({(0, 0): 4 / 3, (0, 1): 0.0, (0, 2): 3.0})


def test_overlaps_and_classes_of_pairs():
    overlap = {(0, 1): 0.5, (0, 2): 0.3, (1, 2): 0.1}
    rows = [(0, t, i, f"overlap/{j}", value + t) for t in (1, 2, 9) for i, j in overlap for value in [overlap[i, j]]]
    rows += [(0, t, j, f"overlap/{i}", overlap[i, j] + t) for t in (1, 2, 9) for i, j in overlap]
    shares = [(0.5, 0.5, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0)]
    rows += [
        (0, t, c, f"class_share/{k}", v) for t in (1, 2) for c, own in enumerate(shares) for k, v in enumerate(own)
    ]
    runs = frames(agg={0: [0.5]}, traces=rows)
    assert proxies.pair_overlaps(runs, "none", [1, 2]).to_dict() == pytest.approx({(0, 0): 2, (0, 1): 1.8, (0, 2): 1.6})
    assert proxies.class_agreement(runs, "none").to_dict() == pytest.approx({(0, 0): 0.75, (0, 1): 0, (0, 2): 0.25})


def test_numbered_traces_of_the_last_round_that_has_them():
    rows = [(0, 1, 0, "rise/0", 5.0), (0, 2, 0, "rise/0", -1.0), (0, 2, 0, "rise/1", 2.0), (0, 2, 1, "rise/0", 3.0)]
    runs = frames(agg={0: [0.5]}, traces=[*rows, (0, 3, 0, "rises", 7.0), (0, 2, 0, "top_rise/0", 8.0)])
    assert proxies.numbered(runs, "none", "rise").to_dict() == {(0, 0, 0): -1, (0, 0, 1): 2, (0, 1, 0): 3}
    assert proxies.numbered(runs, "none", "rise", size=True).tolist() == [1, 2, 3]


def test_a_correlation_is_a_term_that_rules_judge():
    seeds = range(5)
    says = [(s, 1, c, "says", float(c)) for s in seeds for c in range(4)]
    close = {s: [0.1, 0.2, 0.3, 0.4 if s else 0.25] for s in seeds}
    against = {s: [0.4, 0.3, 0.2, 0.1 if s else 0.25] for s in seeds}
    arms = {"close": frames(seeds, agg=close, traces=says), "against": frames(seeds, agg=against)}
    proxy = {"of_clients": {"of": "close", "name": "says"}}
    found = Terms(arms, max, "agg").value({"rank_correlation": [proxy, "close"]})
    assert found.tolist() == pytest.approx([0.8, 1, 1, 1, 1])
    best = {"best_value": {"of": ["close", "against"], "values": [1, 2]}}
    assert Terms(arms, max, "agg").value(best).loc[1].tolist() == [2, 2, 1, 1]
    parts = {
        label: {"rule": "B", "delta": 0.5, "point": "none", "of": {"rank_correlation": [proxy, {"accuracy": own}]}}
        for label, own in (
            ("a", {"of": "close", "point": "agg"}),
            ("b", {"of": "against", "point": "agg"}),
        )
    }
    assert [line.verdict.word for line in judge_row(parts, arms, max)] == [HOLDS, FAILS]


def test_runs_without_the_rounds_that_are_asked_for_leave_it_undecided():
    runs = frames(agg={0: [0.5, 0.5]}, traces=[(0, 1, 0, "class_share/0", 1.0), (0, 1, 1, "class_share/0", 1.0)])
    overlap, classes = {"pair_overlaps": {"of": "a", "rounds": [5, 9]}}, {"class_agreement": {"of": "a"}}
    for terms in ([overlap, classes], [{"numbered": {"of": "a", "name": name}} for name in ("score", "rise")]):
        (line,) = judge_row({"x": {"rule": "B", "delta": 0.5, "of": {"rank_correlation": terms}}}, {"a": runs}, max)
        assert (line.verdict.word, line.verdict.note) == (UNDECIDED, "too few rounds to read this")
