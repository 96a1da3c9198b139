"""Configurations as YAML: files and command-line values."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fedbench.errors import ConfigError, first_line

MOST_LEVELS, MOST_VALUES = 50, 100_000
FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C where PyYAML has it: ten times as fast, and a report reads the configuration of every run."""


class PlainLoader(FastLoader):
    """YAML 1.2 scalars: `1e-3` is a number; `on`, `yes`, `1:30`, `007` and dates are text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name and type are PyYAML's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuses keys that are not text and duplicate keys."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise ConstructorError(
                    problem=f"key {key} is not text; keys are names such as rounds", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise ConstructorError(problem=f"duplicate key {key}; keep one", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


PlainLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|)$"), [*"~nN", ""])
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]
)
PlainLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), [*"-+0123456789"])
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|nan))$"),
    [*"-+.0123456789"],
)


class PlainDumper(yaml.SafeDumper):
    """Quotes texts that either version of YAML would read as something else, such as `1e3`."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012 - the name and type are PyYAML's
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, ()),
            *PlainLoader.yaml_implicit_resolvers.get(first, ()),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *PlainLoader.yaml_implicit_resolvers}
    }


def write_yaml(path: Path, tree: dict[str, Any]) -> None:
    """Writes a file that `load_yaml` reads as the same tree. Raises ConfigError."""
    text = yaml.dump(tree, Dumper=PlainDumper, sort_keys=False, allow_unicode=True)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None


NONE = ("", "~", "null")
"""How YAML writes none, in lower case."""


def parse_value(text: str) -> Any:
    """Parses a command-line value as YAML in one line; what is none there, or would be a comment, is text.

    Raises ConfigError for brackets, braces and quotes that do not close.
    """
    text = text.strip()
    opened = text.startswith(("[", "{", '"', "'"))
    if not opened and "#" in text:
        return text
    try:
        value = _load(text)
    except yaml.YAMLError as error:
        if not opened:
            return text
        raise ConfigError(f"{text!r} is not a value in YAML ({first_line(error)})") from None
    is_none = value is None and text.casefold() not in NONE
    return text if not opened and (is_none or isinstance(value, dict | list)) else value


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Reads a configuration file. Raises ConfigError if it cannot be read."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"--config {path}: cannot be read ({reason}); give the path of a YAML file") from None
    try:
        tree = _load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path}: not valid YAML ({_problem_line(error, text)})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"--config {path}: a mapping of keys is expected, for example `rounds: 100`")
    return tree


def _load(text: str) -> Any:
    """Raises YAMLError, also for values that are too large to be meant, such as an alias of itself."""
    try:
        tree = yaml.load(text, PlainLoader)
    except RecursionError:
        raise yaml.YAMLError(f"more than {MOST_LEVELS} levels of nesting") from None
    except ValueError as error:  # of numbers with thousands of digits
        raise yaml.YAMLError(first_line(error)) from None
    level, count = [tree], 0
    for _ in range(MOST_LEVELS):
        level = [inner for value in level for inner in _values_of(value)]
        count += len(level)
        if count > MOST_VALUES:
            raise yaml.YAMLError(f"more than {MOST_VALUES} values")
        if not level:
            return tree
    raise yaml.YAMLError(f"more than {MOST_LEVELS} levels of nesting")


def _values_of(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _problem_line(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or first_line(error)
    if mark is None:
        return problem
    lines = text.split("\n")
    number = min(mark.line, len(lines) - 1)  # an end without a line break is marked after the last line
    hint = "; indent with spaces, not with tabs" if lines[number].startswith("\t") else ""
    return f"line {number + 1}: {problem}{hint}"
