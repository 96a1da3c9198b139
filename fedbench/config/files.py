"""Configurations as YAML: files and command-line values."""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fedbench.errors import ConfigError, first_line


class PlainLoader(yaml.SafeLoader):
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


def parse_value(text: str) -> Any:
    """Parses a command-line value as YAML. Raises ConfigError."""
    try:
        return yaml.load(text, PlainLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{text!r} is not a value in YAML ({first_line(error)})") from None


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Reads a configuration file. Raises ConfigError if it cannot be read."""
    try:
        tree = yaml.load(Path(path).read_text(), PlainLoader)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigError(f"--config {path}: cannot be read ({reason}); give the path of a YAML file") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path}: not valid YAML ({_where(error)})") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"--config {path}: a mapping of keys is expected, for example `rounds: 100`")
    return tree


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or first_line(error)
    return f"line {mark.line + 1}: {problem}" if mark else problem
