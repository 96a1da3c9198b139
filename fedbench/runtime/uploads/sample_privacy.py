"""Sample-level differential privacy: what clients send, or publish, of models trained by DP-SGD.

Two runs are neighbours if one of them has one training sample more, at one client. Every gradient step of a client is a
Gaussian mechanism on a Poisson sample of its data (`engine.private_loop`), and the steps of all fits of its trainings
are composed over the rounds, whatever becomes of their models. Fits for evaluation alone, such as fine-tuning in
`personal`, and those of newcomers are not counted: nothing of them is trained further or sent, and their models must
not be published with this epsilon. The accountant is that of the library dp-accounting (Renyi divergences).
"""

from collections.abc import Iterable, Mapping
from functools import cache

from fedbench.config import Config
from fedbench.config.fleet import PrivacyConfig
from fedbench.config.words import plural
from fedbench.engine.private_loop import refuse_method
from fedbench.errors import ConfigError
from fedbench.installation import require
from fedbench.methods.base import Method
from fedbench.runtime.server.fleet import SERVER

ORDERS = [*range(2, 33), 40, 48, 64, 96]
"""Orders of the divergences; those between 1 and 2 take ten times as long, and fail at high rates."""
MOST_TRACED = 100
"""Largest number of clients whose own epsilon is traced; each takes some milliseconds."""


def check_sample_privacy(config: Config, method: Method) -> None:
    """Raises ConfigError for methods, models and settings whose steps would not be private."""
    train, name = config.train, config.method.name
    if method.makes_steps(method.options):
        refuse_method(name, "makes gradient steps of its own")
    if method.context.layout.has_batchnorm:
        raise ConfigError(
            "privacy.level = sample: the model has BatchNorm layers, under which a sample's gradient depends on the "
            "others of its batch; take one with GroupNorm (resnet8, resnet10 and resnet18 with --model.norm group) or "
            "without normalisation (avgcnn, mlp)"
        )
    if method.shared_buffers.size:
        raise ConfigError(
            "privacy.level = sample: clients also send buffers of the model, which have no noise; set method.buffers = "
            "private"
        )
    settings = {
        f"train.engine = {train.engine}": train.engine not in ("auto", "loop"),
        f"train.accumulate = {train.accumulate}": train.accumulate > 1,
        "train.shuffle = False": not train.shuffle,
        f"train.optimizer = {train.optimizer}": method.context.optimizer_reevaluates,
    }
    if clash := next((key for key, is_set in settings.items() if is_set), None):
        raise ConfigError(
            f"{clash}: private steps are single ones of fedbench's loop, on samples that are drawn at random; leave it "
            "out, or set privacy.level = client"
        )


@cache
def epsilon_of(noise: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon of so many steps, each on samples drawn with probability `rate`.

    Raises ConfigError without dp-accounting.
    """
    require("privacy")
    import dp_accounting as library
    from dp_accounting.rdp import RdpAccountant

    event = library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(noise))
    accountant = RdpAccountant(ORDERS, neighboring_relation=library.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(event, steps).get_epsilon(delta))


class SampleBudget:
    """Epsilon of every client after any number of steps."""

    def __init__(self, config: PrivacyConfig, method: Method) -> None:
        self.noise, self.method, self.sizes = config.noise, method, method.context.sizes
        self.delta = config.delta or 1 / max(2, *self.sizes)

    def rate(self, client: int) -> float:
        """The probability with which a batch holds a sample of a client."""
        size = self.method.context.train.batch_size
        return 1.0 if size == "full" else min(1.0, size / self.sizes[client])

    def epsilon(self, client: int, steps: int) -> float:
        """Epsilon of a client after so many steps."""
        return epsilon_of(self.noise, self.rate(client), steps, self.delta) if steps else 0.0

    def largest(self, steps: Mapping[int, int]) -> float:
        """The largest epsilon of all clients. Only those are computed that no other client dominates."""
        pairs = {(self.rate(client), count) for client, count in steps.items()}
        return max((epsilon_of(self.noise, *pair, self.delta) for pair in highest(pairs) if pair[1]), default=0.0)

    def traces(self, rounds: int, steps: Mapping[int, int]) -> dict[tuple[int, str], float]:
        """The largest epsilon, and that of every client if they are not many."""
        traces = {(SERVER, "epsilon"): self.largest(steps)}
        if len(self.sizes) <= MOST_TRACED:
            traces |= {(client, "client_epsilon"): self.epsilon(client, count) for client, count in steps.items()}
        return traces

    def line(self, rounds: int) -> str:
        """The remark to give before round 1."""
        context, kind = self.method.context, type(self.method)
        per_round = (kind.steps(self.method.options, context.train, n, context.public) for n in self.sizes)
        steps = {client: rounds * count for client, count in enumerate(per_round)}
        return (
            f"sample-level differential privacy: after {plural(rounds, 'round')} epsilon is {self.largest(steps):.3g} "
            f"at delta = {self.delta:.2g}, the largest of clients that take part in all (Poisson batches); scores, "
            "losses, public samples and tuning are not part of it, nor are models that are fine-tuned for evaluation "
            "alone, which must not be published with it"
        )


def highest(pairs: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """The pairs (rate, steps) of which no other has at least the same of both."""
    orders: list[tuple[float, int]] = []
    for rate, steps in sorted(pairs, reverse=True):
        if not orders or steps > orders[-1][1]:
            orders.append((rate, steps))
    return orders
