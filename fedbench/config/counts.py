"""The numbers of clients that take part in a round, and that join after the last one."""

from math import floor


def count_of(clients: int, participation: float) -> int:
    """The number of clients that take part in a round.

    participation: a share in (0, 1], rounded to the nearest count and at least 1, or a count >= 2.
    """
    return min(clients, int(participation) if participation > 1 else max(1, floor(participation * clients + 0.5)))


def newcomer_count(clients: int, newcomers: float) -> int:
    """The number of clients that join after the last round.

    newcomers: a share in (0, 1) of the clients, rounded to the nearest count and at least 1, or a count.
    """
    return max(1, floor(newcomers * clients + 0.5)) if 0 < newcomers < 1 else int(newcomers)
