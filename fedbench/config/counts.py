"""The number of participating clients."""

from math import floor


def count_of(clients: int, participation: float) -> int:
    """The number of clients that take part in a round.

    participation: a share in (0, 1], rounded to the nearest count and at least 1, or a count >= 2.
    """
    return min(clients, int(participation) if participation > 1 else max(1, floor(participation * clients + 0.5)))
