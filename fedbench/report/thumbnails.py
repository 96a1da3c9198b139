"""Images as data URLs, which a page holds itself."""

import base64
import io

import numpy as np
from PIL import Image

LOSSLESS = 64
"""Images up to this many pixels a side are shown unchanged; larger ones are scaled down."""
THUMBNAIL = 96


def picture(pixels: np.ndarray) -> str:
    """Encodes uint8 [C, H, W] as a data URL."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    stream = io.BytesIO()
    if max(image.size) <= LOSSLESS:
        image.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        image.save(stream, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
