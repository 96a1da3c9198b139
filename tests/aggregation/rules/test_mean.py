"""The weighted mean."""

from fedbench.aggregation.rules.mean import Mean
from tests.aggregation.rules.models import combine, scalars


def test_parameters_and_buffers_are_averaged_with_the_weights_and_counters_are_not():
    found = combine(Mean(), scalars(1.0, 2.0, 4.0), [0.5, 0.25, 0.25])
    assert (found.params.tolist(), found.buffers.tolist(), found.counters.tolist()) == ([2.0], [20.0], [2])
