"""What a key takes, and what is wrong with a value, in words."""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedbench.errors import nearest

MOST_SHOWN = 100
"""Characters of a value that is shown."""


def legal(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a key takes, in words: `number in [0, 1)`, `whole number >= 1 or none`, `sgd, adam or adamw`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return legal(arguments[0], [*metadata, *arguments[1:]])
    if origin is Literal:
        return _either([str(choice) for choice in arguments])
    if origin in (Union, UnionType):
        parts = [legal(part, () if part is NoneType else metadata) for part in arguments]
        return _either([word for part in parts for word in part.split(" or ")])
    if origin is list:
        return f"list of {legal(*arguments)}".replace("number", "numbers")
    words = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path", NoneType: "none"}
    name = words.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return f"{name} {bounds}" if (bounds := _bounds(metadata)) else name


def legal_of(field: FieldInfo) -> str:
    """What a key takes, in words."""
    return legal(field.annotation, field.metadata)


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _bounds(metadata: Iterable[Any]) -> str:
    """`in [0, 1)`, `>= 1` or nothing."""
    limits: dict[str, Any] = {}
    for item in metadata:
        for part in getattr(item, "metadata", [item]):
            limits |= {side: v for side in ("ge", "gt", "le", "lt") if (v := getattr(part, side, None)) is not None}
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if low is not None and high is not None:
        return f"in {'[' if 'ge' in limits else '('}{_plain(low)}, {_plain(high)}{']' if 'le' in limits else ')'}"
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " ".join(f"{signs[side]} {_plain(value)}" for side, value in limits.items())


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def explain(error: ValidationError, root: type[BaseModel], prefix: str = "") -> str:
    """The first problem of a pydantic error in one line: key, value, what is legal, the nearest known name."""
    problem = error.errors()[0]
    section, field, path = _walk(root, [str(part) for part in problem["loc"]])
    key, value = prefix + ".".join(path), problem["input"]
    if problem["type"] == "extra_forbidden":
        unknown = str(problem["loc"][len(path)])
        where = f"{key}.{unknown}" if path else f"{prefix}{unknown}"
        meant = [*plural_of(unknown, section.model_fields), *keys_called(unknown.replace("-", "_"), root)]
        hint = f"did you mean {' or '.join(meant)}?" if meant else nearest(unknown, section.model_fields)
        return f"unknown key {where}: {hint}"
    if problem["type"] == "value_error":
        return f"{key} = {_cut(value)}: {problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] == "missing":
        return f"{key}: a value is needed"
    if field is None:
        name = "a name, a class or a function, or " if "name" in section.model_fields else ""
        return f"{key} = {_cut(value)}: must be {name}a mapping of the keys {', '.join(section.model_fields)}"
    takes = legal_of(field)
    article = "a " if takes.startswith(("number", "whole", "list", "path")) else ""
    empty = "at least one value" if problem["type"] == "too_short" else ""
    return f"{key} = {_cut(value)}: must be {empty or article + takes}{_close(value, field)}"


def _cut(value: Any) -> str:
    """A value as Python writes it, in one line that is not too long; of an object that is none of a file its type."""
    if not isinstance(value, str | int | float | list | tuple | dict | Path | None):
        return f"an object of type {type(value).__name__}"
    text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _walk(root: type[BaseModel], loc: list[str]) -> tuple[type[BaseModel], FieldInfo | None, list[str]]:
    """The innermost section, the key's field (None for a whole section) and the known part of the path."""
    section, field, path = root, None, []
    for part in loc:
        if part not in section.model_fields:
            break
        path.append(part)
        annotation = section.model_fields[part].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            field = section.model_fields[part]
            break
        section = annotation
    return section, field, path


def plural_of(name: str, known: Container[str]) -> list[str]:
    """The known name that is written as a plural, as seeds is for seed; nothing where there is none."""
    return [f"{name}s"] if f"{name}s" in known else []


def keys_called(name: str, section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a section, and of those in it, whose last part is a name."""
    for key, field in section.model_fields.items():
        kind = field.annotation
        if key == name:
            yield prefix + key
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys_called(name, kind, f"{prefix}{key}.")


def _close(value: Any, field: FieldInfo) -> str:
    """`; did you mean dirichlet?` for a misspelt choice."""
    choices = [c for c in get_args(field.annotation) if isinstance(c, str)]
    hint = nearest(value, choices) if isinstance(value, str) and len(choices) > 1 else ""
    return f"; {hint}" if hint.startswith("did you mean") else ""
