"""Arguments of the users' own classes and functions, whose words no type of fedbench reads."""

import inspect
from typing import Any

from fedbench.errors import ConfigError

TRUTHS = ("on", "off", "yes", "no", "y", "n", "true", "false")
"""Words for truth values. Texts, which `off` and `no` are in YAML 1.2, all count as true in Python."""


def refuse_word(key: str, value: Any, parameter: inspect.Parameter, taker: str) -> None:
    """Raises ConfigError for words such as `off` where an argument is a truth value, and for `none` in place of None.

    Arguments that are declared to take texts may have any. taker: whose argument it is.
    """
    word, declared = value.casefold() if isinstance(value, str) else "", _words_of(parameter.annotation)
    is_truth = parameter.annotation is bool or declared == "bool" or isinstance(parameter.default, bool)
    if word in TRUTHS and is_truth and not ("str" in declared or "Literal" in declared):
        raise ConfigError(f"{key} = {value!r}: {taker} takes true or false there")
    if word == "none" and parameter.default is None and "Literal" not in declared:
        raise ConfigError(f"{key} = {value!r}: that is a text; write null for None, the default of {taker}")


def _words_of(annotation: Any) -> str:
    """An annotation as it is written; empty without one."""
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
