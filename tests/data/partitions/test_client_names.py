"""Names of clients."""

from fedbench.config import Config
from fedbench.data import Dataset, partition
from fedbench.data.partitions.client_names import client_names


def test_clients_of_data_without_domains_have_no_names():
    config = Config(partition={"clients": 3})
    dataset = Dataset.load(config.data)
    assert client_names(dataset, partition(dataset, config, 0)) == ["", "", ""]
