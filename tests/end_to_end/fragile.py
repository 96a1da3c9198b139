"""A user's method that works for most values of its option."""

from pydantic import Field

from fedbench.methods.base import Method
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights


class Fragile(Method):
    """FedAvg, but for one value."""

    class Options(Method.Options):
        strength: int = Field(1, description="all but 13 work")

    def start(self, initial: Weights) -> ServerState:
        if self.options.strength == 13:
            raise RuntimeError("thirteen is too much")
        return super().start(initial)
