"""Conversion between trees of keys and dotted keys."""

from typing import Any


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """`{"train": {"lr": 1}}` -> `{"train.lr": 1}`. A value of a section that is a dict stays whole."""
    out: dict[str, Any] = {}
    for name, value in tree.items():
        out |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
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
            node[last] = dict(value) if isinstance(value, dict) else value  # later keys may be added to it
    return tree
