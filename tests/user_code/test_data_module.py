"""What a loader of a data module does besides giving the items of its data set is refused."""

import numpy as np
import pytest
import torch
from lightning import LightningDataModule
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from fedbench.config import Config
from fedbench.data.describe import describe
from fedbench.errors import ConfigError
from fedbench.user_code.data_module import loaders_of

ITEMS = TensorDataset(torch.ones(20, 2), torch.tensor(np.arange(20) % 2))


class Pairs(BatchSampler):
    """Makes batches in an order of its own."""


class Module(LightningDataModule):
    """Its training loader has these arguments."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def train_dataloader(self):
        return DataLoader(ITEMS, **self.options)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"batch_sampler": Pairs(range(20), 2, False)},
            "Module.train_dataloader() draws with a Pairs, but every item ",
        ),
        ({"sampler": WeightedRandomSampler([1.0] * 20, 20)}, "draws with a WeightedRandomSampler, but every item "),
        ({"sampler": RandomSampler(ITEMS, num_samples=5)}, "draws with a RandomSampler, but every item "),
        ({"sampler": RandomSampler(ITEMS, replacement=True)}, "draws with a RandomSampler, but every item "),
        ({"batch_size": None}, "has batch_size=None; give single items as the data set"),
        (
            {"batch_size": 3, "shuffle": True, "drop_last": True},
            "has drop_last=True, but clients train on all of their",
        ),
    ],
)
def test_an_order_of_its_own_is_refused(options, line):
    with pytest.raises(ConfigError) as caught:
        loaders_of(Module(**options))
    assert line in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "batch_size": 4}, {"num_workers": 2}])
def test_usual_loaders_are_taken(options):
    assert loaders_of(Module(**options))["train"].dataset is ITEMS


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"batch_size": 64, "shuffle": True}, "its loader's batch_size 64 is not used: train.batch_size 32 is"),
        ({"batch_size": 32}, "its loader's shuffle=False is not used: training draws a random order"),
        (
            {"batch_size": 64},
            "its loader's batch_size 64 and shuffle=False are not used: train.batch_size 32 is and training draws a "
            "random order",
        ),
        ({"batch_size": 32, "shuffle": True}, ""),
    ],
)
def test_what_training_does_in_place_of_the_loader_is_described(tmp_path, monkeypatch, options, line):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    config = Config(data=Module(**options), train={"batch_size": 32})
    assert [own.said for own in describe(config).about("parts")] == [line] * bool(line)
