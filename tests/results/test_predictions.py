"""Files of predictions."""

import numpy as np
import pytest

from fedbench.errors import ConfigError
from fedbench.results.files import seed_file, write_points
from fedbench.results.predictions import PREDICTIONS_FOLDER, join, read_predictions

PARTS = {
    4: {"rows": np.array([7]), "outputs": np.array([[0.5, 1]], np.float32), "targets": np.array([1])},
    2: {"rows": np.array([5, 9]), "outputs": np.ones((2, 2), np.float32), "targets": np.array([0, 0])},
}


def test_clients_come_in_ascending_order_and_are_found_again(tmp_path):
    for seed in (2, 10):
        write_points(
            seed_file(tmp_path, PREDICTIONS_FOLDER, seed),
            {"after_agg": vars(join(PARTS)), "after_fit": vars(join(PARTS))},
        )
    found = read_predictions(tmp_path)
    assert list(found) == [(2, "after_fit"), (2, "after_agg"), (10, "after_fit"), (10, "after_agg")]
    own = found[10, "after_agg"]
    assert (own.clients.tolist(), own.rows.tolist(), own.targets.tolist()) == ([2, 2, 4], [5, 9, 7], [0, 0, 1])
    assert own.of(4).outputs.tolist() == [[0.5, 1.0]]
    assert len(own.of(2)) == 2


def test_a_damaged_file_is_one_line(tmp_path):
    path = seed_file(tmp_path, PREDICTIONS_FOLDER, 0)
    write_points(path, {"after_agg": vars(join(PARTS))})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"seed-0\.npz: damaged"):
        read_predictions(tmp_path)
    np.savez(path, **{"after_agg/clients": np.zeros(1)})
    with pytest.raises(ConfigError, match=r"'after_agg/rows' is missing"):
        read_predictions(tmp_path)
    assert read_predictions(tmp_path / "nowhere") == {}
