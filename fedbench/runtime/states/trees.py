"""Stores nested values as named tensors and a line of JSON, the content of a safetensors file."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
from torch import Tensor

from fedbench.module.weights import Weights

PLAIN_TYPES = (bool, int, float, str, type(None))
TENSOR, WEIGHTS, PAIRS, TUPLE = "tensor", "weights", "pairs", "tuple"
ALIGNMENT = 64
"""Bytes to whose multiples PyTorch allocates memory on a CPU."""
REST, CHECKSUM, FILES = "rest", "crc32", "files"
"""Keys of the JSON, of a checksum, and of a list with those of other files, in the metadata of a file."""


class Packing:
    """The tensors of a tree by their place in it. A tensor that occurs twice is kept once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._places: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()

    def json_part(self, value: Any, place: str) -> Any:
        """The JSON part of a value. Raises TypeError if it cannot be kept."""
        if isinstance(value, Tensor):
            return {TENSOR: self._put_tensor(value.detach(), place)}
        if type(value) in PLAIN_TYPES:
            return value
        if type(value) is Weights:
            return {WEIGHTS: [self.json_part(part, f"{place}/{name}") for name, part in vars(value).items()]}
        if isinstance(value, dict):
            return {
                PAIRS: [
                    [self.json_part(key, ""), self.json_part(item, f"{place}/{key}")] for key, item in value.items()
                ]
            }
        if isinstance(value, list | tuple):
            items = [self.json_part(item, f"{place}/{number}") for number, item in enumerate(value)]
            return items if isinstance(value, list) else {TUPLE: items}
        raise TypeError(refusal(value, place))

    def _put_tensor(self, tensor: Tensor, place: str) -> str:
        storage = tensor.untyped_storage().data_ptr()
        known = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if known in self._places and tensor.numel():
            return self._places[known]
        while place in self.tensors:  # "b" in "a" has the same place as "a/b"
            place += "'"
        tensor = tensor.cpu()
        shared = storage in self._storages and tensor.numel()
        self.tensors[place] = tensor.clone(memory_format=torch.contiguous_format) if shared else tensor.contiguous()
        self._storages.add(storage)
        self._places[known] = place
        return place


def with_aligned_memory(tensor: Tensor) -> Tensor:
    """The tensor, where it begins in memory like a new one: the bits of a product depend on it. Else a copy of it."""
    return tensor.clone() if tensor.numel() and tensor.data_ptr() % ALIGNMENT else tensor


def move_vectors(tree: Any, device: torch.device) -> Any:
    """The tree with its vectors on a device; numbers and the counters of models stay where they are, on the CPU."""
    if isinstance(tree, Tensor):
        return tree.to(device) if tree.dim() else tree
    if type(tree) is Weights:
        return tree.replace(params=tree.params.to(device), buffers=tree.buffers.to(device))
    if isinstance(tree, dict):
        return {key: item if key == "counters" else move_vectors(item, device) for key, item in tree.items()}
    return type(tree)(move_vectors(item, device) for item in tree) if isinstance(tree, list | tuple) else tree


def refusal(tree: Any, place: str) -> str | None:
    """Names the first value of a tree that cannot be kept, if any."""
    if isinstance(tree, Tensor) or type(tree) in (*PLAIN_TYPES, Weights):
        return None
    if isinstance(tree, dict):
        items = [*((key, place) for key in tree), *((item, f"{place}.{key}") for key, item in tree.items())]
    elif isinstance(tree, list | tuple):
        items = [(item, f"{place}[{number}]") for number, item in enumerate(tree)]
    else:
        kind = f"{type(tree).__module__}.{type(tree).__qualname__}".removeprefix("builtins.")
        return f"{place} is a {kind}, which cannot be kept: keep tensors, weights, numbers, strings, lists and dicts"
    return next((line for item in items if (line := refusal(*item))), None)


def pack_tree(tree: Any) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Pack a tree for safetensors: tensors by name, and metadata.

    A tree: tensors, weights, numbers, strings, None, and dicts, lists and tuples of these. Raises TypeError otherwise.
    """
    packing = Packing()
    rest = json.dumps(packing.json_part(tree, ""))
    return packing.tensors, {REST: rest}


def tensor_checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """CRC-32 of the texts and of the tensors' bytes, in the order of their names."""
    checksum = zlib.crc32((metadata[REST] + metadata.get(FILES, "")).encode())
    for name in sorted(tensors):
        checksum = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, checksum)
    return f"{checksum:08x}"


def unpack_tree(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Any:
    """The tree that was packed."""

    def value(rest: Any) -> Any:
        if isinstance(rest, list):
            return [value(item) for item in rest]
        if not isinstance(rest, dict):
            return rest
        ((kind, content),) = rest.items()
        if kind == TENSOR:
            return with_aligned_memory(tensors[content])
        if kind == PAIRS:
            return {value(key): value(item) for key, item in content}
        items = [value(item) for item in content]
        return Weights(*items) if kind == WEIGHTS else tuple(items)

    return value(json.loads(metadata[REST]))


def nbytes(tree: Any) -> int:
    """Bytes of the tensors in a tree."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    items = vars(tree) if isinstance(tree, Weights) else tree
    if isinstance(items, dict):
        return sum(map(nbytes, items.values()))
    return sum(map(nbytes, items)) if isinstance(items, list | tuple) else 0


def encode(tree: Any) -> np.ndarray:
    """The content of a file that holds a tree, uint8."""
    return np.frombuffer(save(*pack_tree(tree)), np.uint8)


def decode(content: np.ndarray) -> Any:
    """The tree in the content of a file, which begins with the length of its header."""
    whole = content.tobytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    return unpack_tree(load(whole), header["__metadata__"])


def write(tree: Any, path: Path, checked: bool = False, files: Mapping[str, str] | None = None) -> None:
    """Write a tree to a file atomically. Raises OSError if there is no room.

    checked: with a checksum of its tensors, for files that are kept. files: the checksums of files that belong to it.
    """
    tensors, metadata = pack_tree(tree)
    if files is not None:
        metadata[FILES] = json.dumps(files)
    if checked:
        metadata[CHECKSUM] = tensor_checksum(tensors, metadata)
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from None


def read(path: Path) -> Any:
    """The tree in a file; changes to its tensors stay private to the reader.

    Raises OSError if the file holds no tree, or if it has changed since it was written with a checksum.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from None
    if not metadata or REST not in metadata:
        raise OSError(f"{path}: holds tensors but no tree")
    if CHECKSUM in metadata and metadata[CHECKSUM] != tensor_checksum(tensors, metadata):
        raise OSError(f"{path}: has changed since it was written")
    return unpack_tree(tensors, metadata)
