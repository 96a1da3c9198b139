"""What samples are taken for, and to which bits they are read."""

import numpy as np
import pytest
import torch
from PIL import Image

from fedbench.data.reading.images import Item
from fedbench.data.reading.samples import SampleReader
from fedbench.errors import ConfigError
from tests.data.loading import refused

GREY = np.arange(20, dtype=np.uint8).reshape(4, 5)
COLOUR = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
FLOATS = np.linspace(0, 1, 60, dtype=np.float32)


def read(value, kind=None) -> tuple[str, np.ndarray]:
    reader = SampleReader.of(Item(value, 0, "item 0"), kind)
    return reader.kind, reader(Item(value, 0, "item 0"))


def remarks(value, kind=None) -> tuple[str, ...]:
    return SampleReader.of(Item(value, 0, "item 0"), kind).remarks


@pytest.mark.parametrize(
    ("same", "expected"),
    [
        ([GREY, torch.from_numpy(GREY), Image.fromarray(GREY)], GREY[None]),
        (
            [COLOUR, torch.from_numpy(COLOUR), Image.fromarray(COLOUR), COLOUR.transpose(2, 0, 1)],
            COLOUR.transpose(2, 0, 1),
        ),
    ],
)
def test_bytes_are_images_whatever_holds_them(same, expected):
    for value in same:
        kind, found = read(value)
        assert (kind, found.dtype) == ("image", np.uint8)
        np.testing.assert_array_equal(found, expected)
        assert remarks(value) == ()


@pytest.mark.parametrize("shape", [(60,), (6, 10), (3, 4, 5), (1, 6, 10), (4, 5, 3), (2, 3, 2, 5)])
def test_floats_stay_floats_whatever_their_shape_and_whatever_holds_them(shape):
    values = FLOATS.reshape(shape)
    for value in (values, torch.from_numpy(values), values.tolist(), values.astype(np.float64)):
        _, found = read(value)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, values)


def test_half_precision_is_read_exactly():
    values = torch.linspace(0, 1, 9)
    for dtype in (torch.bfloat16, torch.float16):
        np.testing.assert_array_equal(read(values.to(dtype))[1], values.to(dtype).float().numpy())


def test_whole_numbers_are_tokens_and_that_is_said():
    for value in (np.arange(7), torch.arange(7, dtype=torch.int32), [*range(7)], np.arange(7, dtype=np.uint8)):
        kind, found = read(value)
        assert (kind, found.dtype, found.tolist()) == ("token", np.int64, [*range(7)])
        assert "--data.kind feature for counts, --data.kind image for pixels" in remarks(value)[0]


def test_floats_that_look_like_pictures_are_pictures_only_where_that_is_said():
    picture = FLOATS.reshape(4, 5, 3)
    assert "--data.kind image" in remarks(picture)[0]
    kind, found = read(picture, "image")
    assert kind == "image"
    np.testing.assert_array_equal(found, picture.transpose(2, 0, 1))
    assert read(picture.transpose(2, 0, 1))[0] == "image"


def test_the_kind_can_be_said():
    assert read(np.arange(7), "feature")[1].dtype == np.float32
    assert read(np.arange(7.0), "token")[1].dtype == np.int64
    kind, found = read(np.arange(20).reshape(4, 5), "image")
    assert (kind, found.dtype, found.shape) == ("image", np.uint8, (1, 4, 5))
    np.testing.assert_array_equal(read(Image.fromarray(GREY), "feature")[1], GREY[None].astype(np.float32))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("file.png", None, "the sample is a str; pass the tokens of a text"),
        (np.zeros(3, complex), None, "the sample is a complex128 array"),
        (np.float32(3), None, "a single number; expected an array with at least one dimension, as X[:, None]"),
        (torch.tensor(3.0), None, "a single number"),
        (np.zeros(0), None, "the sample is empty"),
        ([[1, 2], [3]], None, "a list of unequal parts"),
        (np.full((4, 5), np.nan), None, "values that are not finite"),
        (np.array([1e300]), None, "values that are not finite"),
        (np.full((4, 5), 256), "image", "values that are not pixels"),
        (np.arange(4), "image", "int64 [4] is not an image"),
        (np.array([0.5]), "token", "fractional numbers are not tokens"),
        (np.array([2**25]), "feature", "lose digits in float32"),
        (np.array([2**63], np.uint64), "token", "too large"),
        (Image.new("F", (5, 4)), None, "pixel format F; 8 bits per channel are expected: convert it, or bring its num"),
        (np.array([1.5, "red"], object), None, "an array of texts or other objects; encode them as numbers beforehand"),
        (np.ma.masked_array([1.0, 2], [0, 1]), None, "the sample has masked numbers; fill them in"),
        (torch.eye(2).to_sparse(), None, "the sample is a sparse tensor; pass it dense"),
        (np.array((1, 2), dtype=[("a", int), ("b", int)])[()], None, "the sample is a record; pass a pandas DataFrame"),
    ],
)
def test_what_cannot_be_read_is_named(value, kind, text):
    line = refused(read, value, kind)
    assert line.startswith("item 0: ")
    assert text in line


@pytest.mark.parametrize("later", [GREY, torch.tensor(GREY), Image.fromarray(GREY)], ids=["array", "tensor", "picture"])
def test_pixels_are_refused_after_floats_whose_scale_they_do_not_have(later):
    """Such as a test part without the transform of the training part."""
    read = SampleReader.of(Item(GREY / 255, 0, "item 0"))
    assert read(Item((GREY > 9).astype(int), 0, "item 1")).max() == 1
    with pytest.raises(ConfigError, match="but the first sample holds floats; bring all of one type and scale"):
        read(Item(later, 0, "item 2"))


def test_arrays_after_pictures_are_told_from_other_shapes():
    read = SampleReader.of(Item(Image.fromarray(GREY), 0, "item 0"))
    with pytest.raises(ConfigError, match=r"item 1: .*, but the first sample is a PIL image$"):
        read(Item(GREY[None], 0, "item 1"))


@pytest.mark.parametrize(("first", "later"), [(GREY, COLOUR), (GREY, GREY / 2), (np.arange(3), np.array([0.5, 1, 2]))])
def test_a_sample_of_another_kind_than_the_first_is_named(first, later):
    with pytest.raises(ConfigError, match="item 1: "):
        SampleReader.of(Item(first, 0, "item 0"))(Item(later, 0, "item 1"))


def test_transparent_pixels_are_read_on_white_and_counted():
    picture = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    picture.putpixel((1, 0), (10, 20, 30, 0))
    opaque = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    reader = SampleReader.of(Item(opaque, 0, "item 0"))
    assert reader(Item(opaque, 0, "item 0")).tolist() == [[[10, 10]], [[20, 20]], [[30, 30]]]
    assert reader(Item(picture, 0, "item 1")).tolist() == [[[10, 255]], [[20, 255]], [[30, 255]]]
    assert reader.transparent == ["item 1"]


def test_a_masked_array_without_gaps_is_an_array():
    assert read(np.ma.masked_array([1.0, 2], [0, 0]))[1].tolist() == [1, 2]


@pytest.mark.parametrize(
    "shape", [(3, 4, 3), (1, 5, 1), (8, 8, 8), (1, 5, 3), (9, 9, 103), (103, 9, 9), (2, 40, 3), (3, 40, 2)]
)
def test_the_colour_of_an_image_is_asked_for_if_two_dimensions_may_be_it(shape):
    value = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    with pytest.raises(ConfigError, match=r"item 0: an image of shape .* \(--data.channels first\) or .*last\)"):
        read(value)
    for asked, expected in (("first", value), ("last", value.transpose(2, 0, 1))):
        reader = SampleReader.of(Item(value, 0, "item 0"), None, asked)
        np.testing.assert_array_equal(reader(Item(value, 0, "item 0")), expected)
        assert [(own.how, own.value) for own in reader.decisions] == [("certain", "image"), ("given", asked)]


@pytest.mark.parametrize(
    ("shape", "channels"), [((12, 64, 64), 12), ((64, 64, 12), 12), ((2, 50, 60), 2), ((50, 60, 2), 2), ((40, 2, 3), 3)]
)
def test_bands_that_are_fewer_than_pixels_are_channels(shape, channels):
    assert len(read(np.ones(shape, np.uint8))[1]) == channels


@pytest.mark.parametrize("value", [np.ones(3), GREY, Image.fromarray(GREY), np.arange(3)])
def test_channels_of_samples_that_have_none_are_refused(value):
    with pytest.raises(
        ConfigError, match=r"data.channels = last: item 0 is .* and has no such dimension; leave it out"
    ):
        SampleReader.of(Item(value, 0, "item 0"), None, "last")
