"""The configuration of a run: keys, validation and error messages."""

from fedbench.config.execution import ResourcesConfig, WandbConfig
from fedbench.config.schema import (
    AggregatorConfig,
    Config,
    DataConfig,
    EvaluateConfig,
    MethodConfig,
    ModelConfig,
    PartitionConfig,
    PublicConfig,
    TrainConfig,
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
