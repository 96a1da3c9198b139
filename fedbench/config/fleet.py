"""Keys of the fleet: which clients are slow, and by how much."""

from pydantic import Field

from fedbench.config.section import Section


class StragglersConfig(Section):
    """Slow clients: those that stop early, and the time that a synchronous round takes."""

    share: float = Field(
        0.0, ge=0, le=1, description="share of participants that stop early, drawn by round and client"
    )
    work: float = Field(
        0.5, gt=0, le=1, description="share of its local steps that a straggler takes, rounded, at least one"
    )
    spread: float = Field(
        0.0,
        ge=0,
        le=5,
        description="spread of the clients' times per step: the standard deviation of their logarithm; the trace "
        "round_time says how long the slowest participant takes",
    )
