"""The user's code and data that a run is made with: method, model, aggregator, data factory, scheme, task, metrics."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from fedbench.aggregation.rules import AGGREGATORS
from fedbench.config import Config
from fedbench.data import sources
from fedbench.data.partitions.scheme import SCHEMES
from fedbench.errors import ConfigError
from fedbench.methods import METHODS
from fedbench.models import MODELS, parts_in
from fedbench.tasks import TASKS
from fedbench.user_code import code_of, different_files, look_again, outdated_files

log = logging.getLogger("fedbench")
SECTIONS: dict[str, Callable[[str], str]] = {
    "method": METHODS.path,
    "data": sources.path_of,
    "aggregator": AGGREGATORS.path,
    "partition": SCHEMES.path,
}
"""The parts that affect results and may be the user's own, with the function for their path."""


def user_names(config: Config) -> dict[str, str]:
    """The parts of a configuration that are not fedbench's own, as package.module:name, by section."""
    names = {section: path_of(getattr(config, section).name) for section, path_of in SECTIONS.items()}
    models = config.model.names
    names |= {"model" if len(models) == 1 else f"model {name}": MODELS.path(name) for name in models}
    names["shared model"] = MODELS.path(str(config.method.options.get("shared_model")))
    names["task"] = TASKS.path(config.data.task)
    metrics = [*config.evaluate.metrics, *filter(None, [config.evaluate.metric])]
    names |= {f"metric {name}": name for name in metrics if ":" in name}
    names |= {f"model part {name}": name for name in parts_in(config.model.options)}
    return {section: name for section, name in names.items() if name}


def short_fingerprint(config: Config) -> str:
    """Eight hexadecimal digits that identify the user's code and data; empty if there are none."""
    return fingerprint_in(code_record(config))


def fingerprint_in(environment: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits that identify the code and data of a run, by its environment.json; empty if none."""
    known = {section: record["fingerprint"] for section, record in environment.get("code", {}).items()}
    return sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:8] if known else ""


def code_record(config: Config) -> dict[str, Any]:
    """The user's code and data by section as environment.json records them; fedbench's own classes are left out."""
    codes = {section: code_of(name) for section, name in user_names(config).items()}
    known = {s: {"fingerprint": code.fingerprint, "files": dict(code.files)} for s, code in codes.items() if code.files}
    if content := config.data.content:
        known["content"] = {"fingerprint": content, "files": {f"data {config.data.name}": content}}
    return {"code": known} if known else {}


def changed_files(environment: Mapping[str, Any], config: Config) -> list[str] | None:
    """Files and packages that have changed since a run was made; None if the run has no record of its code."""
    now = code_record(config).get("code", {})
    before = environment.get("code", {})
    if now.keys() - before.keys():
        return None
    different = {s for s in now if before[s]["fingerprint"] != now[s]["fingerprint"]}
    names = {name for s in different for name in different_files(before[s]["files"], now[s]["files"])}
    return sorted(names, key=lambda name: (name.startswith("data "), name))


def check_code_is_current(config: Config, one_process: bool = True) -> None:
    """Warns if this process has imported something else than what is in the user's files now, and runs that.

    Raises ConfigError if other processes, which import the files, take part.
    """
    for name in user_names(config).values():
        if files := outdated_files(name):
            line = f"{in_words(files)}: this process has imported other code for {name}; "
            remedy = "restart Python, or import what has changed again (importlib.reload)"
            if config.resources.hosts or not one_process:
                raise ConfigError(line + remedy)
            log.warning("%sthat is what runs: to run the files, %s", line, remedy)


def refresh_fingerprints(config: Config, *methods: str) -> None:
    """Read the user's classes, functions and data again, for a new command. methods: further ones, by name.

    Raises ConfigError if data in this process have changed since their name was given.
    """
    for name in (*user_names(config).values(), *map(METHODS.path, methods), config.data.name):
        look_again(name)


def changed_since(files: Iterable[str]) -> str:
    """`a.py has changed since`, `a.py and b.py have changed since`."""
    names = list(files)
    return f"{in_words(names)} {'has' if len(names) == 1 else 'have'} changed since"


def in_words(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
