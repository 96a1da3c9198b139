"""Pictures of what a method traced."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fedbench.results.trace import Trace
from fedbench_papers.claims.traced import HeadSensitivity
from tests.report.conftest import write_traces
from tests.report.reading import Make, page_of


def declare(folder: Path, *traces: Trace) -> None:
    """The run's method declares these traces too."""
    file = folder / "environment.json"
    tree = json.loads(file.read_text())
    file.write_text(json.dumps({**tree, "traces": [*tree["traces"], *map(asdict, traces)]}))


def test_a_declared_trace_has_its_words_and_its_section_without_a_change_here(make_run: Make) -> None:
    folder = make_run(method="mine", seeds=(0,))
    declare(folder, Trace("drift", "Drift", "drift, %", is_share=True, note="Of all.", section="Drifts", intro="Hm."))
    write_traces(folder, [(0, r, c, "drift", 0.1 * r) for r in (1, 2) for c in range(3)])
    page = page_of(folder)
    assert page.charts["drift"]["data"][1]["y"] == [10, 20]
    assert page.charts["drift"]["layout"]["yaxis"]["title"]["text"] == "drift, %"
    assert "drift" in page.sections
    assert "inside" not in page.sections
    assert all(words in page.text for words in ("Drifts", "Hm.", "Of all."))


def test_lambda_traces_show_the_flipped_client_by_name(make_run: Make, with_lambda: Callable) -> None:
    folder = make_run(method="fedmosaic", partition_keys={"flip_clients": [0]})
    with_lambda(folder)
    page = page_of(folder)
    names = [note["text"] for note in page.charts["lambda"]["layout"]["annotations"]]
    assert names == ["client 0: flipped", "other 9 clients"]
    assert {"lambda", "inside"} <= set(page.sections)


def test_whatever_a_method_traces_is_drawn(make_run: Make) -> None:
    folder = make_run(method="fedamp")
    rows = [(0, r, c, f"weight/{(c + 1) % 3}", 0.1 * r) for r in (1, 2) for c in range(3)]
    rows += [(0, r, c, "epsilon", r + c) for r in (1, 2) for c in range(3)]
    rows += [(0, r, -1, "live_share", 0.3 * r) for r in (1, 2)] + [(0, 1, -1, "live_share/head", 0.3)]
    rows += [(0, r, -1, "threshold", 0.1 * r) for r in (1, 2)]
    write_traces(folder, rows)
    charts = page_of(folder).charts
    assert {"weights", "trace-0", "trace-1"} <= set(charts)
    assert charts["weights"]["data"][0]["z"] == [[None, 20, None], [None, None, 20], [20, None, None]]
    assert charts["trace-0"]["data"][1]["y"] == [2.0, 3.0]  # epsilon: the mean over clients
    assert charts["trace-1"]["data"][1]["y"] == [0.3, 0.6]
    assert charts["trace-2"]["data"][1]["y"] == [0.1, 0.2]
    assert "trace-3" not in charts


def test_where_personal_numbers_lie_is_drawn_over_rounds(make_run: Make) -> None:
    folder = make_run(method="fedobp")
    rows = [(0, r, c, f"personal_location/{k}", v * r) for r in (1, 2) for c in (0, 1) for k, v in LAYERS.items()]
    write_traces(folder, rows)
    chart = page_of(folder).charts["mask-rounds"]["data"][0]
    assert chart["y"] == ["conv", "head"]
    assert chart["z"] == [[10, 20], [30, 60]]


LAYERS = {"conv": 0.1, "head": 0.3}


def test_many_clients_and_the_rows_of_the_classifier_are_heat_maps(make_run: Make) -> None:
    folder = make_run(method="fedcac", clients=30, seeds=(0,))
    declare(folder, *HeadSensitivity.traces)
    pairs = [(0, 2, c, f"overlap/{o}", 0.5) for c in range(30) for o in range(30) if c != o]
    write_traces(folder, [*pairs, (0, 2, 0, "head_sensitivity/0", 2.0), (0, 2, 0, "head_sensitivity/1", 1.0)])
    charts = page_of(folder).charts
    assert len(charts["overlap"]["data"][0]["z"]) == 30
    assert "texttemplate" not in charts["overlap"]["data"][0]
    assert charts["sensitivity"]["data"][0]["z"] == [[100, 50]]


def test_the_accuracy_of_the_consensus_is_drawn_apart(make_run: Make) -> None:
    folder = make_run(method="fedct")
    write_traces(folder, [(0, r, -1, "consensus_accuracy", 0.4 * r) for r in (1, 2)])
    charts = page_of(folder).charts
    assert charts["consensus"]["data"][1]["y"] == [40.0, 80.0]
    assert "trace-0" not in charts


def test_traces_of_clusters_are_drawn(make_run: Make) -> None:
    folder = make_run(method="ifca")
    rows = [(0, r, -1, f"cluster_size/{k}", r + k) for r in (1, 2) for k in (1, 2)]
    rows += [(0, r, c, "cluster", 1.0 + (r * c) % 2) for r in (1, 2) for c in range(3)]
    rows += [(0, 2, c, f"affinity/{o}", 0.25 * o) for c in range(3) for o in range(3) if c != o]
    write_traces(folder, rows)
    charts = page_of(folder).charts
    sizes = charts["numbers-cluster_size"]["data"]
    assert [(line["name"], line["y"]) for line in sizes] == [("1", [2, 3]), ("2", [3, 4])]
    assert charts["clusters"]["data"][0]["z"] == [[1, 1], [2, 1], [1, 1]]
    assert charts["pairs-affinity"]["data"][0]["z"] == [[None, 0.25, 0.5], [0, None, 0.5], [0, 0.25, None]]
    assert "trace-0" not in charts  # the mean of numbers of clusters says nothing


def test_what_modules_log_is_drawn_once_and_names_of_charts_are_names_of_files(make_run: Make) -> None:
    folder = make_run(method="fedamp")
    names = ("logged/recall/0", "logged/1", "a/b/0")
    write_traces(folder, [(0, r, c, name, 0.5) for r in (1, 2) for c in range(3) for name in names])
    drawn = {name for name in page_of(folder).charts if name.startswith(("trace-", "pairs-", "numbers-"))}
    assert drawn == {"trace-0", "trace-1"}


def test_the_servers_numbers_are_drawn_without_those_that_clients_trace_by_the_same_name(make_run: Make) -> None:
    folder = make_run(method="mine", seeds=(0,))
    write_traces(folder, [(0, 1, -1, "attention/0", 1.0), *((0, 1, c, "attention/0", 10.0) for c in range(3))])
    charts = page_of(folder).charts
    assert charts["numbers-attention"]["data"][0]["y"] == [1]
    assert charts["pairs-attention"]["data"][0]["z"] == [[10], [10], [10]]
