"""Descriptions of legal values and validation errors in words."""

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedbench.errors import ConfigError, nearest

MOST_SHOWN = 100
"""Maximum number of characters shown of a value."""


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def range_of(counts: Sequence[int]) -> str:
    """`12 to 40`, or `12` if all are the same."""
    return " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))


def legal_of_type(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Describes legal values: `number in [0, 1)`, `whole number >= 1 or none`, `sgd, adam or adamw`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return legal_of_type(arguments[0], [*metadata, *arguments[1:]])
    if origin is Literal:
        return _join_with_or([str(choice) for choice in arguments])
    if origin in (Union, UnionType):
        parts = [legal_of_type(part, () if part is NoneType else metadata) for part in arguments]
        return _join_with_or([word for part in parts for word in part.split(" or ")])
    if origin is list:
        return f"list of {legal_of_type(*arguments)}".replace("number", "numbers")
    words = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path", NoneType: "none"}
    name = words.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return f"{name} {bounds}" if (bounds := _bounds(metadata)) else name


def legal_of(field: FieldInfo) -> str:
    """Describes the legal values of a field."""
    return legal_of_type(field.annotation, field.metadata)


def _join_with_or(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _bounds(metadata: Iterable[Any]) -> str:
    """Returns `in [0, 1)`, `>= 1` or an empty string."""
    limits: dict[str, Any] = {}
    for item in metadata:
        for part in getattr(item, "metadata", [item]):
            limits |= {side: v for side in ("ge", "gt", "le", "lt") if (v := getattr(part, side, None)) is not None}
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if low is not None and high is not None:
        left, right = "[" if "ge" in limits else "(", "]" if "le" in limits else ")"
        return f"in {left}{_format_number(low)}, {_format_number(high)}{right}"
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " ".join(f"{signs[side]} {_format_number(value)}" for side, value in limits.items())


def _format_number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def refuse_values(error: ValidationError, root: type[BaseModel], prefix: str = "") -> NoReturn:
    """Raises the first ConfigError of a validator, or else one that explains the first error."""
    for problem in error.errors():
        if isinstance(raised := problem.get("ctx", {}).get("error"), ConfigError):
            raise raised from raised.__cause__
    raise ConfigError(explain(error, root, prefix)) from None


def explain(error: ValidationError, root: type[BaseModel], prefix: str = "") -> str:
    """Describes the first error in one line: key, value, legal values, nearest known name."""
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
        return f"{key} = {_shorten_value(value)}: {problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] == "missing":
        return f"{key}: a value is required"
    if field is None:
        name = "a name, a class or a function, or " if "name" in section.model_fields else ""
        return f"{key} = {_shorten_value(value)}: must be {name}a mapping of the keys {', '.join(section.model_fields)}"
    takes = legal_of(field)
    article = "a " if takes.startswith(("number", "whole", "list", "path")) else ""
    empty = "at least one value" if problem["type"] == "too_short" else ""
    return f"{key} = {_shorten_value(value)}: must be {empty or article + takes}{_suggest_choice(value, field)}"


def _shorten_value(value: Any) -> str:
    """The value as Python writes it, shortened to one line; for other objects, the type."""
    if not isinstance(value, str | int | float | list | tuple | dict | Path | None):
        return f"an object of type {type(value).__name__}"
    text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _walk(root: type[BaseModel], loc: list[str]) -> tuple[type[BaseModel], FieldInfo | None, list[str]]:
    """The innermost section, the key's field (None for a section) and the known part of the path."""
    section, field, path = root, None, []
    for part in loc:
        if part not in section.model_fields:
            path += [part] if section.model_config.get("extra") == "allow" else []
            break
        path.append(part)
        if (inner := section_of(section.model_fields[part])) is None:
            field = section.model_fields[part]
            break
        section = inner
    return section, field, path


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, if it is one."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def plural_of(name: str, known: Container[str]) -> list[str]:
    """The known plural of a name (seeds for seed), or nothing."""
    return [f"{name}s"] if f"{name}s" in known else []


def keys_called(name: str, section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a section and its subsections that end in this name."""
    for key, field in section.model_fields.items():
        if key == name:
            yield prefix + key
        elif (inner := section_of(field)) is not None:
            yield from keys_called(name, inner, f"{prefix}{key}.")


def _suggest_choice(value: Any, field: FieldInfo) -> str:
    """Suggests a misspelt choice: `; did you mean dirichlet?`"""
    choices = [c for c in get_args(field.annotation) if isinstance(c, str)]
    hint = nearest(value, choices) if isinstance(value, str) and len(choices) > 1 else ""
    return f"; {hint}" if hint.startswith("did you mean") else ""
