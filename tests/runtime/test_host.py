"""When a host calls a method, and at which learning rate."""

import json
from itertools import product

from tests.runtime.rounds import play, small
from tests.runtime.watchful import Watchful


def test_a_model_is_received_once_and_a_survey_has_the_rate_of_the_round_to_come(tmp_path):
    record = play(small("tests.runtime.watchful:Watchful", train__lr_decay=0.5, rounds=3), tmp_path)
    assert sorted(Watchful.received) == list(product(range(4), range(10)))
    assert sorted(Watchful.answered) == [(0, 1.0)] * 10 + [(2, 0.25)] * 10
    lines = [json.loads(line) for line in record["metrics.jsonl"].splitlines()]
    first, second, third = (line for line in lines if line["point"] == "after_fit")
    for way, size in (("bytes_up", 4), ("bytes_down", 12)):
        assert first[way] == second[way] == third[way] + 10 * size
