"""State dicts in files: initial weights of models, and models saved by runs."""

from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from fedbench.errors import ConfigError, nearest
from fedbench.models.compiled import unwrapped_name

LIGHTNING = "state_dict"
"""The key of the state dict in a Lightning checkpoint."""


def load_state_dict(module: nn.Module, path: Path) -> None:
    """Copies the tensors of a file into a module with the same tensors, compiled or not.

    Buffers that PyTorch leaves out of state dicts may be in the file. Raises ConfigError if others differ.
    """
    names = {unwrapped_name(name): name for name in module.state_dict()}
    given = {unwrapped_name(name): tensor for name, tensor in read_state_dict(path).items()}
    expected = {name: module.state_dict()[names[name]] for name in names}
    unsaved = {unwrapped_name(name): buffer for name, buffer in module.named_buffers()}
    unsaved = {name: unsaved[name] for name in unsaved.keys() - expected.keys() & given.keys()}
    where = f"model.weights = {path}"
    for name in sorted(expected.keys() - given.keys()):
        raise ConfigError(f"{where}: the model's tensor '{name}' is missing; {nearest(name, given)}")
    expected |= unsaved
    for name in sorted(given.keys() - expected.keys()):
        raise ConfigError(f"{where}: the model has no tensor '{name}'; {nearest(name, expected)}")
    for name, tensor in given.items():
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_complex():
            raise ConfigError(f"{where}: '{name}' is sparse, complex or without numbers; save plain tensors")
        if not tensor.isfinite().all():
            raise ConfigError(f"{where}: '{name}' holds values that are not finite; give the model of an earlier step")
        if tensor.shape != expected[name].shape:
            shapes = f"{list(tensor.shape)}, and the model's is {list(expected[name].shape)}"
            raise ConfigError(f"{where}: '{name}' has the shape {shapes}")
    module.load_state_dict({names[name]: tensor for name, tensor in given.items() if name in names})
    for name, buffer in unsaved.items():
        buffer.copy_(given[name])


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name, without executing anything. Raises ConfigError for anything but a state dict."""
    where, content = f"model.weights = {path}", None
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror or error})") from None
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, AttributeError) as error:
        what = "holds more than tensors" if isinstance(error, UnpicklingError) else "is damaged or has another format"
        raise ConfigError(f"{where}: it {what}; write it with torch.save(model.state_dict(), PATH)") from None
    if isinstance(content, dict) and isinstance(content.get(LIGHTNING), dict):
        content = content[LIGHTNING]
    named = isinstance(content, dict) and all(
        isinstance(name, str) and isinstance(content[name], Tensor) for name in content
    )
    if not content or not named:
        raise ConfigError(f"{where}: no state dict; write it with torch.save(model.state_dict(), PATH)")
    return content


def encode_state_dict(state: dict[str, Tensor]) -> bytes:
    """The content of a safetensors file. Each tensor is contiguous and in memory of its own."""
    return save(state)


def weights_fingerprint(path: Path) -> str:
    """Sixteen hexadecimal digits that identify a file's content. Raises ConfigError."""
    try:
        return sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigError(f"model.weights = {path}: cannot be read ({error.strerror or error})") from None
