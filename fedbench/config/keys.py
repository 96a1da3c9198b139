"""Conversion between trees of keys and dotted keys."""

from typing import Any


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"train": {"lr": 1}}` -> `{"train.lr": 1}`."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            out.update(flat(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out


def nest(pairs: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`; merges a section given by name and by keys."""
    tree: dict[str, Any] = {}
    for dotted, value in pairs.items():
        *path, last = dotted.split(".")
        node = tree
        for part in path:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {} if child is None else {"name": child}
            node = child
        if isinstance(node.get(last), dict) and not isinstance(value, dict):
            node[last]["name"] = value
        else:
            node[last] = value
    return tree
