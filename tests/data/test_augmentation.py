"""Augmentation: the same draws, the same images; and what training sees, evaluation does not."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as vision

from fedbench.config import Config
from fedbench.data import Dataset
from fedbench.data.augmentation import Augmentation, crop_images, flip_images, rotate_images
from fedbench.data.partitions import partition
from fedbench.data.split import Split
from fedbench.engine.fit import Fit
from fedbench.errors import ConfigError
from fedbench.runtime.exchange import Setup
from fedbench.runtime.host import Host
from fedbench.runtime.resolved import ResolvedRun

IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (7, 3, 9, 12), np.uint8))


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def split(**options) -> Split:
    rows = torch.arange(len(IMAGES))
    return Split(IMAGES, rows, rows, (torch.ones(3, 1, 1), torch.zeros(3, 1, 1)), (0, 1, 2), **options)


def test_flip_exchanges_left_and_right_where_chosen():
    found = flip_images(IMAGES, torch.tensor([True, False] * 3 + [True]))
    assert torch.equal(found[::2], IMAGES[::2].flip(3))
    assert torch.equal(found[1::2], IMAGES[1::2])


@settings(max_examples=30)
@given(corners=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=7, max_size=7))
def test_crop_is_the_window_of_the_framed_image(corners):
    found = crop_images(IMAGES, torch.tensor(corners), 2)
    for image, (top, left), window in zip(IMAGES, corners, found, strict=True):
        assert torch.equal(window, vision.crop(vision.pad(image, [2]), top, left, 9, 12))


@pytest.mark.parametrize("degrees", [0.0, 7.0, -15.0, 90.0])
def test_rotation_is_torchvisions(degrees):
    square = IMAGES[..., :9]
    for images in (square, IMAGES) if abs(degrees) < 90 else (square,):
        found = rotate_images(images, torch.full((7,), degrees / 180 * torch.pi))
        expected = vision.rotate(images, degrees, InterpolationMode.NEAREST)
        assert (found != expected).float().mean() < 0.01, "rounding at the border between two pixels"


def test_the_same_stream_gives_the_same_images_and_another_others():
    change = Augmentation(["crop", "flip", "rotate"], padding=2)
    assert torch.equal(changed(change), changed(change))
    assert not torch.equal(changed(change), changed(change, 1))
    assert changed(change).dtype == torch.uint8


def changed(change: Augmentation, seed: int = 0) -> torch.Tensor:
    return change(IMAGES, change.draw(len(IMAGES), stream(seed)))


def test_each_kind_is_an_option_and_changes_the_images():
    found = [changed(Augmentation([kind], padding=2)) for kind in ("flip", "crop", "rotate")]
    for one in found:
        assert one.shape == IMAGES.shape
        assert not torch.equal(one, IMAGES)
    assert torch.equal(changed(Augmentation([])), IMAGES)
    assert not torch.equal(changed(Augmentation(["crop"], padding=1)), found[1])
    assert not torch.equal(changed(Augmentation(["rotate"], degrees=60)), found[2])


def test_several_batches_at_once_are_those_one_by_one():
    data = split(augmentation=Augmentation(["flip", "crop", "rotate"]))
    parts = [torch.tensor([4, 1, 2]), torch.tensor([0, 6, 5])]
    one, other = data.with_augmentation(stream()), data.with_augmentation(stream())
    expected = [one.batch(index)[0] for index in parts]
    draws = [other.draw(3) for _ in parts]
    both = {name: torch.cat([drawn[name] for drawn in draws]) for name in draws[0]}
    assert torch.equal(other.batch(torch.cat(parts), both)[0], torch.cat(expected))


def test_a_split_augments_only_as_training_sees_it():
    plain, data = split(), split(augmentation=Augmentation(["flip", "crop"]))
    index = torch.arange(7)
    assert torch.equal(data.batch(index)[0], plain.batch(index)[0])
    seen = data.with_augmentation(stream())
    first, second = seen.batch(index)[0], seen.batch(index)[0]
    assert not torch.equal(first, plain.batch(index)[0])
    assert not torch.equal(first, second), "every epoch has its own draws"
    assert torch.equal(data.with_augmentation(stream()).batch(index)[0], first)
    assert torch.equal(data.batch(index)[0], plain.batch(index)[0])
    assert torch.equal(plain.with_augmentation(stream()).batch(index)[0], plain.batch(index)[0])


def fitted(**data) -> list[float]:
    """What one client's training of two epochs comes to."""
    config = Config(
        data={"val": 0, **data}, partition={"name": "iid", "clients": 20}, model="mlp", train={"epochs": 2}, rounds=1
    )
    config.train.optimizer, config.train.memory_format = "sgd", "contiguous"
    dataset = Dataset.load(config.data)
    host = Host.of(Setup(config, 0, partition(dataset, config, 0)), ResolvedRun.of(config, dataset))
    data = host.data.split([3], "train", (0, 3, 1))
    before = torch.get_rng_state()
    weights = [host.models[0].learner.fit(Fit(host.models[0].initial, data, p)).params for p in ("fit", "fit", "other")]
    torch.set_rng_state(before)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    accuracy = host.models[0].learner.evaluate(host.models[0].initial, data)
    return [*weights[0].tolist(), accuracy["loss"][0]]


def test_training_is_repeated_to_the_bit_and_evaluation_is_not_touched():
    plain, flip = fitted(), fitted(augment=["flip"])
    assert fitted(augment=["flip"]) == flip
    assert plain[:-1] != flip[:-1]
    assert plain[-1] == flip[-1]
    assert fitted(augment=["crop"], crop_padding=1) != fitted(augment=["crop"], crop_padding=2)


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"data\.augment.*flip, rotate or crop"):
        Config(data={"augment": ["mirror"]})
