"""Messages between driver and hosts."""

import torch

from fedbench.methods.messages import Message
from fedbench.runtime.exchange import Report


def test_points_of_one_model_send_their_outcomes_once():
    shared = Message(values=torch.zeros(3))
    report = Report(0, outcomes={"after_agg": shared, "global": shared}, validation={"after_agg": Message()})
    assert report.messages() == [shared, report.validation["after_agg"]]
