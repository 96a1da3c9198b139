"""Images that a page holds itself."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from fedbench.report.thumbnails import LOSSLESS, THUMBNAIL, picture


@pytest.mark.parametrize("channels", [1, 3])
def test_a_small_image_is_kept_to_the_pixel(channels):
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 5, 7), np.uint8)
    shown = decoded(picture(pixels))
    assert np.array_equal(np.asarray(shown).reshape(5, 7, channels), pixels.transpose(1, 2, 0))


def test_a_large_one_is_scaled_down():
    assert max(decoded(picture(np.zeros((3, 2 * LOSSLESS, 3 * LOSSLESS), np.uint8))).size) == THUMBNAIL


def decoded(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
