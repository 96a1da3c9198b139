"""Every method declares charts that pages can draw, each under a name of its own."""

import pytest

from fedbench import methods
from fedbench.report.traces import FORMS

DRAWN = {*FORMS, "mask", "flipped", "location"}


@pytest.mark.parametrize("method", [name for name in methods.names() if methods.load(name).traces])
def test_declared_traces_can_be_drawn(method):
    traces = methods.load(method).traces
    assert {trace.form for trace in traces} <= DRAWN
    assert len({trace.name for trace in traces}) == len(traces)
