"""Data sets and partitions."""

from fedbench.data.dataset import Dataset
from fedbench.data.partitions import ClientRows, Partition, partition

__all__ = ["ClientRows", "Dataset", "Partition", "partition"]
