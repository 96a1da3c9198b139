"""Federated averaging (McMahan, Moore, Ramage, Hampson, Aguera y Arcas; AISTATS 2017).

Private: nothing but the data. Up and down: all parameters and float buffers. The mean runs over the participants of
the round; integer counters are not averaged, the largest is taken. Much public code forgets the running statistics or
averages counters into floats.
"""

from typing import Any, ClassVar

from fedbench.methods.base import About, Method


class FedAvg(Method):
    """The weighted mean of the participants' models (Algorithm 1)."""

    about = About("the weighted mean of the models", "global", "McMahan et al., AISTATS", 2017)
    REDUCES_TO: ClassVar[dict[str, Any]] = {"local": {"partition.clients": 1}}
