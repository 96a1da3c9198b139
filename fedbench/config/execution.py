"""Keys of how a run is executed: hosts and machines, checkpoints, W&B. None of them decides a number."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fedbench.config.section import Section

EXACT, WASTED = 1e-6, 0.05
"""Tolerance of 1/k, and the share of a GPU that rounding it, as in 0.33, may leave unused."""


def make_absolute(value: Path | None) -> Path | None:
    """Makes a path absolute, because cluster processes run in other directories."""
    return value and value.expanduser().absolute()


class ResourcesConfig(Section):
    hosts: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="client host processes; 0: run in the calling process without Ray; auto: as many as the machine "
        "or cluster has room for; on one machine 0 if starting Ray would take longer than the run",
    )
    cpus_per_host: float = Field(1, gt=0, description="CPU cores reserved per host")
    gpus_per_host: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="fraction of a GPU per host; auto: by hosts and GPUs"
    )
    gpus_per_trial: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        description="GPUs per trial of a study, which its hosts divide: 1/k such as 0.25, for k trials on a GPU, or a "
        "whole number; auto: by the memory that trials need",
    )
    address: str = Field("local", description="Ray cluster: local, auto, or host:port")
    strategy: Literal["pack", "spread"] = Field(
        "pack", description="pack: hosts on as few machines as possible; spread: on as many as possible"
    )
    states: Literal["auto", "memory", "disk"] = Field(
        "auto",
        description="private states of clients between rounds: in the host's memory or in files; auto: files if hosts "
        "are separate processes, so that no state is lost when a host dies, or if states may exceed 1 GB",
    )
    scratch: Path | None = Field(
        None,
        description="folder for these files and for messages; none: shared memory, or /tmp if that is too small or "
        "states may exceed 1 GB",
    )

    @field_validator("gpus_per_trial")
    @classmethod
    def _uses_whole_gpus(cls, value: float | str) -> float | str:
        if isinstance(value, str) or (value > 1 and value == int(value)):
            return value
        sharing = int(1 / value + EXACT)
        if value > 1 or sharing * value < 1 - WASTED:
            raise ValueError("must be 1/k, such as 0.5, 0.333 or 0.25, or a whole number: the rest of a GPU has no use")
        return value


class CheckpointConfig(Section):
    every: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="rounds between checkpoints; auto: one after a second or more, and at most a twentieth of the time "
        "is spent on them; 0: no checkpoints",
    )
    keep: bool = Field(
        False,
        description="keep the state of a finished run (models and clients' states), so that the same command with more "
        "rounds continues from it",
    )


class WandbConfig(Section):
    project: str = Field(
        default_factory=lambda: os.environ.get("WANDB_PROJECT") or "fedbench",
        description="W&B project [default from WANDB_PROJECT]",
    )
    entity: str | None = Field(
        default_factory=lambda: os.environ.get("WANDB_ENTITY") or None,
        description="W&B team or user [default from WANDB_ENTITY]",
    )
    group: str | None = Field(
        default_factory=lambda: os.environ.get("WANDB_RUN_GROUP") or None,
        description="W&B group [default from WANDB_RUN_GROUP]; none: the study's name, or data set and partition of a "
        "single run",
    )
    run_name: str | None = Field(
        default_factory=lambda: os.environ.get("WANDB_NAME") or None,
        description="prefix of W&B run names, before method and seed [default from WANDB_NAME]",
    )
    tags: list[str] = Field(
        default_factory=lambda: [tag for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag],
        description="W&B tags [default from WANDB_TAGS]",
    )
    mode: Literal["auto", "online", "offline"] = Field("auto", description="auto: online with an account, else offline")
