"""FedProx's uneven local work: who has less time in a round, and how much of it (sec. 5.2)."""

from fedbench.aggregation.ranks import floored_share
from fedbench.engine.fit import Amount
from fedbench.methods.client import Client
from fedbench.methods.server import Context, ServerState
from fedbench.module import seeds


def stragglers(context: Context, server: ServerState, fraction: float) -> dict[int, int]:
    """Epochs (or steps) of this round's stragglers, from 1 to the full amount. fraction: of the participants."""
    count = floored_share(fraction, len(server.participants))
    if not count:
        return {}
    draw = seeds.numpy_generator(context.seed, server.round, "stragglers")
    chosen = sorted(draw.choice(server.participants, count, replace=False).tolist())
    most = context.train.steps or context.train.epochs
    return {client: int(draw.integers(1, most + 1)) if most else 0 for client in chosen}


def amount_of(client: Client) -> Amount:
    """What the client has time for: `work` of its message, all where there is none."""
    if "work" not in client.message:
        return Amount()
    work = int(client.message.work)
    return Amount(steps=work) if client.learner.train.steps else Amount(epochs=work)
