"""Whether a run has a global model: a server half that never writes one has only that of the start."""

from collections.abc import Iterator
from contextlib import contextmanager

from fedbench.methods.base import Method, takes_aggregators
from fedbench.methods.contract import WEIGHTS_FIELDS
from fedbench.methods.server import ServerState


class GlobalModel:
    """Knows of the global model after the rounds so far.

    written: whether the server half has assigned or changed the server's model; None before the first aggregation. It
    is watched in methods with an `aggregate` of their own, as of one that clusters clients, unless they override
    `global_model` or compute the model by `Method.aggregate`.
    """

    def __init__(self, method: Method) -> None:
        kind = type(method)
        has_aggregate = kind.aggregate is not Method.aggregate and not takes_aggregators(kind)
        is_watched = has_aggregate and kind.global_model is Method.global_model and kind.after_fit != "global"
        self.name = method.context.method
        self.written = None if is_watched and method.shared_params.size else True

    @property
    def is_missing(self) -> bool:
        """Whether the server's model is still that of the start."""
        return not self.written

    def remarks(self) -> list[str]:
        """The remark to give once an aggregation has left the model alone."""
        if self.written is not False:
            return []
        return [
            f"{self.name}: aggregate leaves the server's model as it was at the start, so there is no global model: "
            "none is evaluated or kept; if there is one, assign it there (server.set_model(...)) or return it from the "
            "hook global_model"
        ]

    @contextmanager
    def watching(self, server: ServerState, hook: str) -> Iterator[None]:
        """A block in which the server half may write the model."""
        before = [(name, tensor, tensor._version) for name in WEIGHTS_FIELDS for tensor in [getattr(server, name)]]
        yield
        if any(getattr(server, name) is not tensor or tensor._version != writes for name, tensor, writes in before):
            self.written = True
        elif hook == "aggregate" and self.written is None:
            self.written = False
