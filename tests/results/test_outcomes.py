"""Files of outcomes."""

import numpy as np

from fedbench.results.files import seed_file, write_points
from fedbench.results.outcomes import OUTCOMES_FOLDER, join, read_outcomes, read_points, split
from fedbench.tasks.outcomes import block_of

PARTS = {
    4: {"rows": np.array([7]), "each/accuracy": np.array([1], np.float32)},
    2: {"rows": np.array([5, 9]), "each/accuracy": np.array([0, 1], np.float32), "shared/own": np.ones(2, np.float32)},
}


def test_clients_come_in_ascending_order_and_are_found_again(tmp_path):
    write_points(seed_file(tmp_path, OUTCOMES_FOLDER, 3), {"after_agg": join(PARTS)})
    (((seed, point), found),) = read_outcomes([seed_file(tmp_path, OUTCOMES_FOLDER, 3)], []).items()
    own, shared = found.of("accuracy"), found.of("own")
    assert (seed, point, own.clients.tolist(), own.rows.tolist()) == (3, "after_agg", [2, 2, 4], [5, 9, 7])
    assert (own.values.tolist(), own.units.tolist()) == ([0, 1, 1], [5, 9, 7])
    assert shared.units.tolist() == block_of(np.array([5, 9, 7])).tolist()
    assert np.isnan(shared.values).tolist() == [False, False, True], "client 4 lacks the metric"
    assert found.of("loss") is None
    assert split(join(PARTS))[4]["rows"].tolist() == [7]


def test_whole_groups_are_the_units(tmp_path):
    grouped = {client: {**own, "groups": np.full(len(own["rows"]), 70 + client)} for client, own in PARTS.items()}
    write_points(seed_file(tmp_path, OUTCOMES_FOLDER, 0), {"after_agg": join(grouped)})
    (found,) = read_outcomes([seed_file(tmp_path, OUTCOMES_FOLDER, 0)], []).values()
    assert found.of("accuracy").units.tolist() == [72, 72, 74]


def test_a_damaged_file_is_named_and_left_out(tmp_path):
    path, problems = seed_file(tmp_path, OUTCOMES_FOLDER, 0), []
    write_points(path, {"after_agg": join(PARTS)})
    path.write_bytes(path.read_bytes()[:-20])
    assert (read_outcomes([path], problems), len(problems)) == ({}, 1)
    np.savez(path, **{"after_agg/clients": np.zeros(1)})
    assert (read_points(path, problems), len(problems)) == ({}, 2)
