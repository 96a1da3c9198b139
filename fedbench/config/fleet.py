"""Keys of the fleet: which clients are slow, and which are malicious."""

from typing import Literal

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


class AttackConfig(Section):
    """Malicious clients, which train like all others and send something else. Scores are those of the honest ones."""

    name: Literal["none", "sign-flip", "scaled", "noise", "alie", "inner-product"] = Field(
        "none", description="what malicious clients send in place of their update"
    )
    share: float = Field(
        0.2, gt=0, lt=1, description="share of clients that are malicious, rounded; drawn once by the seed"
    )
    scale: float | None = Field(
        None,
        gt=0,
        description="strength; none: the usual one of the attack (1; scaled 10; alie the largest that its paper's rule "
        "allows)",
    )


class CompressionConfig(Section):
    """How clients shorten what they send: their update of the parameters that are sent."""

    name: Literal["none", "topk", "quantised", "mask"] = Field(
        "none",
        description="topk: only the largest entries; quantised: few bits per entry; mask: random entries, the same for "
        "sender and receiver",
    )
    share: float = Field(0.1, gt=0, le=1, description="share of the entries that topk and mask send")
    bits: int = Field(4, ge=2, le=16, description="bits per entry of quantised, with its sign")
    feedback: bool = Field(
        True, description="whether a client adds to its next update what topk has left out so far (error feedback)"
    )


class PrivacyConfig(Section):
    """Differential privacy: updates, or the gradients of single samples, are shortened, and noise is added."""

    level: Literal["client", "sample"] = Field(
        "client",
        description="what is protected: client: all data of a client, by noise on its update; sample: every training "
        "sample, by noise on each gradient step (DP-SGD)",
    )
    clip: float | None = Field(
        None,
        gt=0,
        description="largest length of an update, what a client sends minus what it received (level client), or of a "
        "sample's gradient (sample); none: any",
    )
    noise: float = Field(
        0.0,
        ge=0,
        description="standard deviation of the noise in the sum of a round's updates, or of a batch's gradients, in "
        "multiples of clip; 0: none",
    )
    delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="delta of the reported epsilon; none: 1 / number of clients, or of the largest client's training "
        "samples (level sample)",
    )
