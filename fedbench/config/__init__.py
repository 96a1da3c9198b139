"""The configuration of a run: its keys, how they are written and what is said of mistakes."""

from fedbench.config.schema import (
    AggregatorConfig,
    Config,
    DataConfig,
    EvaluateConfig,
    MethodConfig,
    ModelConfig,
    PartitionConfig,
    PublicConfig,
    ResourcesConfig,
    TrainConfig,
    WandbConfig,
)
from fedbench.config.section import Section

__all__ = [
    "AggregatorConfig",
    "Config",
    "DataConfig",
    "EvaluateConfig",
    "MethodConfig",
    "ModelConfig",
    "PartitionConfig",
    "PublicConfig",
    "ResourcesConfig",
    "Section",
    "TrainConfig",
    "WandbConfig",
]
