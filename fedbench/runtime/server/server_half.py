"""The server half of a method in a run: its hooks, whose results are checked, and its state."""

from contextlib import nullcontext
from typing import Any

from fedbench.errors import RunError, place_of_code
from fedbench.methods.base import Method
from fedbench.methods.contract import call_hook, check_server, server_hook, shared_model
from fedbench.methods.messages import Message
from fedbench.methods.server import ServerState
from fedbench.module.weights import Weights
from fedbench.runtime.server.global_model import GlobalModel
from fedbench.runtime.states import trees

WRITING = ("aggregate", "conclude")
"""The hooks that may change the state."""


class ServerHalf:
    """Calls the server hooks of a method. initial: the start model of the run."""

    def __init__(self, method: Method, initial: Weights) -> None:
        self.method, self.initial, self.global_model = method, initial, GlobalModel(method)
        self.state: ServerState = self._result("start", initial)

    def call(self, hook: str, *given: Any) -> Any:
        """The result of a hook. Raises RunError if it fails or returns or leaves something invalid."""
        if hook not in WRITING:
            return self._result(hook, self.state, *given)
        before = shared_model(self.state)
        result = self._result(hook, self.state, *given)
        check_server(self.state, before, self.method, hook)
        if line := trees.refusal(self.state.state(), "server"):
            raise RunError(line, place_of_code(type(self.state)))
        return result

    def global_weights(self) -> Weights | None:
        """The global model, if there is one."""
        if self.global_model.is_missing:
            return None
        weights: Weights | None = self.call("global_model", self.initial)
        return weights

    def global_message(self) -> Message | None:
        """The message with the global model, if there is one."""
        weights = self.global_weights()
        return None if weights is None else Message(**vars(weights))

    def restore(self, state: dict[str, Any], written: bool | None) -> None:
        """Return to the state of a checkpoint. written: what it says of the global model."""
        self.state, self.global_model.written = self.method.Server(**state), written

    def _result(self, hook: str, *given: Any) -> Any:
        watching = self.global_model.watching(self.state, hook) if hook in WRITING else nullcontext()
        with server_hook(self.method, hook), watching:
            return call_hook(self.method, hook, *given)
