"""Augmentation of training images, on the device for whole batches, before normalisation.

The random numbers come from a CPU stream, so every device sees the same images; each image takes the same number of
draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

Draws = dict[str, Tensor]
"""Random numbers of a batch by augmentation, in order of application; first dimension: images."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images.

    kinds: flip (left to right, every second image), rotate (by up to `degrees`), crop (from a black frame of `padding`
    pixels, same size).
    """

    kinds: Sequence[str]
    padding: int = 4
    degrees: float = 15.0

    def draw(self, count: int, stream: torch.Generator) -> Draws:
        """Random numbers for a batch of `count` images, on the CPU."""
        draws: Draws = {}
        if "flip" in self.kinds:
            draws["flip"] = torch.rand(count, generator=stream) < 0.5
        if "rotate" in self.kinds:
            draws["rotate"] = (torch.rand(count, generator=stream) * 2 - 1) * (self.degrees / 180 * pi)
        if "crop" in self.kinds:
            draws["crop"] = torch.randint(0, 2 * self.padding + 1, (count, 2), generator=stream)
        return draws

    def __call__(self, pixels: Tensor, draws: Draws) -> Tensor:
        """uint8 or float [b, C, H, W] -> the same shape and type on the same device."""
        here = {kind: drawn.to(pixels.device) for kind, drawn in draws.items()}
        if "flip" in here:
            pixels = flip_images(pixels, here["flip"])
        if "rotate" in here:
            pixels = rotate_images(pixels, here["rotate"])
        return crop_images(pixels, here["crop"], self.padding) if "crop" in here else pixels


def flip_images(pixels: Tensor, chosen: Tensor) -> Tensor:
    """Flips the chosen images (bool [b]) left to right."""
    return torch.where(chosen[:, None, None, None], pixels.flip(3), pixels)


def crop_images(pixels: Tensor, corners: Tensor, padding: int) -> Tensor:
    """Windows of the framed images at these upper left corners (int64 [b, 2], in [0, 2 * padding])."""
    count, channels, height, width = pixels.shape
    framed = F.pad(pixels, (padding,) * 4)
    rows = (corners[:, :1] + torch.arange(height, device=pixels.device))[:, None, :, None]
    columns = (corners[:, 1:] + torch.arange(width, device=pixels.device))[:, None, None, :]
    bands = framed.gather(2, rows.expand(count, channels, height, framed.shape[3]))
    return bands.gather(3, columns.expand(count, channels, height, width))


def rotate_images(pixels: Tensor, angles: Tensor) -> Tensor:
    """Rotates counter-clockwise around the centre by angles [b] in radians; nearest pixel, black outside."""
    height, width = pixels.shape[2:]
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    # Coordinates run from -1 to 1 in both directions, so the aspect ratio matters.
    first = torch.stack([cos, -sin * (height / width), zero], 1)
    second = torch.stack([sin * (width / height), cos, zero], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels.float(), grid, mode="nearest", align_corners=False).to(pixels.dtype)
