"""Events travel from the driver's process to that of the command."""

import pickle
from dataclasses import FrozenInstanceError

import pytest

from fedbench.results.events import Evaluation, Remark
from fedbench.results.remarks import Doubt
from fedbench.tasks import load


def test_an_event_arrives_as_it_was_sent():
    sent = Evaluation(3, 2, load("classification").primary, [{"point": "after_agg"}], [{"name": "lambda"}], 0.5)
    arrived = pickle.loads(pickle.dumps(sent))
    assert vars(arrived).keys() == vars(sent).keys()
    assert arrived.metric.name == "accuracy"
    assert (arrived.seed, arrived.round, arrived.lines, arrived.traces) == (3, 2, sent.lines, sent.traces)


def test_a_doubt_arrives_as_one():
    arrived = pickle.loads(pickle.dumps(Remark(Doubt("the score is that of one client"))))
    assert isinstance(arrived.text, Doubt)


def test_one_watcher_cannot_change_what_the_next_one_gets():
    with pytest.raises(FrozenInstanceError):
        Remark("note").text = "other"  # type: ignore[misc]
