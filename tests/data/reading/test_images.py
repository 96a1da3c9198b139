"""Encoded images: pixels, and the place of every fault."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from fedbench.data.reading.images import Item, channels_of, checked_label, decoded_blocks, decoder
from fedbench.data.reading.samples import SampleReader
from fedbench.data.reading.structure import field_array
from fedbench.errors import ConfigError


@pytest.fixture
def item(encode):
    """An image of one value with a label."""

    def make(value: int = 7, shape: tuple[int, ...] = (4, 6), label: int = 1) -> Item:
        return Item(encode(np.full(shape, value, np.uint8)), label, f"list, row {value}")

    return make


def test_pixels_are_channel_first_and_resized_where_asked(item):
    assert decoder(1, None)(item()).shape == (1, 4, 6)
    assert decoder(3, None)(item()).shape == (3, 4, 6)
    small = decoder(3, 2)(item(9, (4, 6, 3)))
    assert (small.shape, small.dtype, set(small.flatten().tolist())) == ((3, 2, 2), np.uint8, {9})


def test_a_set_is_grey_where_every_image_is(item):
    assert channels_of([item(), item()]) == 1
    assert channels_of([item(), item(1, (4, 4, 3))]) == 3


def test_blocks_keep_the_order(item):
    (block,) = decoded_blocks([item(value, label=value) for value in range(5)], decoder(1, None))
    assert block.targets.tolist() == block.samples[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_an_image_of_another_shape_is_named(item):
    with pytest.raises(ConfigError, match=r"list, row 2: the image is 4x4 of 1 channel.*before it are 6x4"):
        list(decoded_blocks([item(1), item(2, (4, 4))], decoder(1, None)))


def test_what_is_no_image_is_named(tmp_path, encode):
    with pytest.raises(ConfigError, match=r"here: not an image that Pillow can read \(unknown format\)"):
        decoder(1, None)(Item(b"text", 0, "here"))
    with pytest.raises(ConfigError, match="here: the image is damaged"):
        decoder(1, None)(Item(encode(np.full((40, 40), 7, np.uint8))[:60], 0, "here"))
    Image.fromarray(np.zeros((2, 2), np.int32)).save(tmp_path / "wide.tif")
    with pytest.raises(ConfigError, match="here: pixel format I"):
        decoder(1, None)(Item(tmp_path / "wide.tif", 0, "here"))


@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_colours_of_sixteen_bits_are_refused(kind, channels):
    """Pillow writes none, and reads the upper eight bits."""
    header = struct.pack(">IIBBBBB", 2, 1, 16, kind, 0, 0, 0)
    line = b"\0" + np.arange(2 * channels, dtype=">u2").tobytes()
    parts = {b"IHDR": header, b"IDAT": zlib.compress(line), b"IEND": b""}
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    ]
    with pytest.raises(ConfigError, match=r"here: pixel format (RGB|LA|RGBA);16B; 8 bits per channel are expected"):
        decoder(3, None)(Item(b"\x89PNG\r\n\x1a\n" + b"".join(chunks), 0, "here"))


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "missing"), ("1", "not a whole number"), (1.0, "not a whole number"), (3, "0 to 2"), (-1, "0 to 2")],
)
def test_labels_that_are_none(value, said):
    with pytest.raises(ConfigError, match=said):
        checked_label(value, 3, "row 0")


def test_pictures_are_upright_whoever_reads_them(tmp_path):
    values = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(values).save(tmp_path / "lying.png", exif=exif)
    with Image.open(tmp_path / "lying.png") as picture:
        item = SampleReader.of(Item(picture, 0, "item 0"))(Item(picture, 0, "item 0"))
        field = field_array(picture, "item 0", [])
    encoded = decoder(1, None)(Item((tmp_path / "lying.png").read_bytes(), 0, "item 0"))
    np.testing.assert_array_equal(item, np.rot90(values)[None])
    np.testing.assert_array_equal(encoded, item)
    np.testing.assert_allclose(field * 255, item, rtol=1e-6)


def test_a_picture_of_several_pages_is_refused_by_whoever_reads_it(tmp_path):
    pages = [Image.new("L", (4, 3), page) for page in range(2)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    with Image.open(tmp_path / "pages.tif") as picture:
        for read in (
            lambda: SampleReader.of(Item(picture, 0, "x"))(Item(picture, 0, "x")),
            lambda: field_array(picture, "x", []),
            lambda: decoder(1, None)(Item(tmp_path / "pages.tif", 0, "x")),
        ):
            with pytest.raises(ConfigError, match="x: 2 pages; an image has one"):
                read()
