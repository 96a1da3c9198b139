"""Which runs are degenerate: at the last evaluated round, or in more than half of them."""

import pandas as pd
import pytest

from fedbench.results.degenerate import degenerate_seeds

TRACES = ["seed", "round", "client", "name", "value"]


@pytest.mark.parametrize(
    ("marked", "found"),
    [([], []), ([1], []), ([1, 2], []), ([1, 2, 3], [7]), ([4], [7]), ([1, 2, 3, 4], [7])],
)
def test_a_seed_is_degenerate_at_its_end_or_mostly(marked, found):
    metrics = pd.DataFrame({"seed": 7, "round": [0, 1, 2, 3, 4], "point": "after_agg"})
    traces = pd.DataFrame([(7, t, -1, "degenerate", 1.0) for t in marked], columns=TRACES)
    other = pd.DataFrame([(7, t, -1, "live_share", 1.0) for t in range(5)], columns=TRACES)
    assert degenerate_seeds(metrics, pd.concat([traces, other])) == found
