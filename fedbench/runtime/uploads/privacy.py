"""Differential privacy of a run, by its level: what is checked before round 1, and what epsilon is."""

from collections.abc import Mapping
from typing import Protocol

from fedbench.config import Config
from fedbench.config.fleet import PrivacyConfig
from fedbench.errors import ConfigError
from fedbench.methods.base import Method
from fedbench.runtime.uploads.client_privacy import check_client_privacy, client_budget
from fedbench.runtime.uploads.sample_privacy import SampleBudget, check_sample_privacy


class PrivacyBudget(Protocol):
    """Epsilon over the rounds of a run."""

    def traces(self, rounds: int, steps: Mapping[int, int]) -> dict[tuple[int, str], float]:
        """Traces after so many rounds, in which each client has made so many gradient steps."""
        ...

    def line(self, rounds: int) -> str:
        """The remark to give before round 1."""
        ...


def check_privacy(config: Config, method: Method) -> None:
    """Raises ConfigError for settings whose budget would not be what is reported."""
    privacy = config.privacy
    if privacy.clip is None:
        for key, value in (("noise", privacy.noise), ("level", privacy.level)):
            if value not in (0, "client"):
                raise ConfigError(f"privacy.{key} = {value}: without effect without privacy.clip; set it, say to 1.0")
        return
    _refuse_what_is_sent_openly(config, method)
    if privacy.level == "sample":
        check_sample_privacy(config, method)
    else:
        check_client_privacy(config, method)


def _refuse_what_is_sent_openly(config: Config, method: Method) -> None:
    """Raises ConfigError for methods that give away data, or what is made of them, at either level."""
    name, clip = config.method.name, f"privacy.clip = {config.privacy.clip:g}"
    if method.trainers(method.options) == "pooled":
        raise ConfigError(
            f"{clip}: {name} trains on the pooled data of all clients, which is not made private; leave it out, or "
            "compare other methods"
        )
    if method.also_sends:
        raise ConfigError(
            f"{clip}: clients of {name} also send {method.also_sends}, without noise; leave it out, or compare "
            "other methods"
        )


def refuse_answers(config: Config) -> None:
    """Raises ConfigError for a method that asks all clients a question in an extra pass."""
    if config.privacy.clip is not None:
        name = config.method.name
        raise ConfigError(
            f"privacy.clip: {name} asks all clients a question, whose answers have no noise; leave it out"
        )


def privacy_budget(config: PrivacyConfig, method: Method) -> PrivacyBudget | None:
    """The budget of a run; none without noise, or if clients send nothing."""
    if not config.noise:
        return None
    return SampleBudget(config, method) if config.level == "sample" else client_budget(config, method)
