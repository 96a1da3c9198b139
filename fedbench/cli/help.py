"""The output of --help and --print-config, made from the pydantic models that validate the values."""

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedbench import methods, models, tasks
from fedbench.aggregation import rules
from fedbench.cli.flags import COMMON, TUNING_PREFIX, Flag, flag_of, keys_of_command, sections, yaml_value
from fedbench.cli.lines import terminal_width
from fedbench.config import Config
from fedbench.config.keys import flat
from fedbench.config.tuning import Tuning
from fedbench.config.words import legal_of

HelpRow = tuple[str, str]
INDENT = 30
SECTION_TEXTS = {
    "method": "--method.OPTION sets an option of the method: `fedbench methods NAME` or `--method NAME --help`",
    "data": f"tasks: {', '.join(tasks.names())}\n"
    "  --data.OPTION sets an option of the data set: `fedbench data NAME --help`; all: `fedbench data --help`",
    "partition": "--partition.OPTION sets an option of the scheme; `fedbench data --help` lists schemes",
    "aggregator": f"names: {', '.join(rules.names())}; options: `--aggregator NAME --help`",
    "model": f"names: {', '.join(models.MODELS.names())}\n"
    "  --model.ARGUMENT sets an argument of the model's constructor",
}
USUAL = (
    *("method.name", "data.name", "data.task", "partition.name", "partition.clients", "partition.alpha"),
    *("model.name", "train.optimizer", "train.lr", "train.batch_size", "train.epochs", "aggregator.name"),
    *("rounds", "participation", "seeds", "evaluate.metric", "resources.hosts", "resources.gpus_per_host"),
    *("save_models", "loggers", "name", "out"),
)
"""Keys of the short help."""


def help_text(
    prog: str,
    extra: Sequence[Flag],
    named: Mapping[str, str | None],
    about: str = "",
    in_full: bool = True,
    tuning: type[Tuning] | None = None,
) -> str:
    """Flags by section with description, default and range, and the options of what is named.

    named: names of method, aggregator and data set, if given. in_full: all flags, else the usual ones. Raises
    ConfigError for unknown names.
    """
    known = keys_of_command(tuning)
    keys = [key for key in known if in_full or key in USUAL or key.startswith(TUNING_PREFIX)]
    lines = [f"usage: {prog} [--KEY VALUE ...]", "", *([about, ""] if about else [])]
    lines += [*_table("options", [_flag_row(flag) for flag in (*extra, *COMMON)])]
    lines += [*_table("run", [_key_row(key, known[key]) for key in keys if "." not in key])]
    for name in (TUNING_PREFIX.removesuffix("."), *sections()):
        rows = [_key_row(key, known[key]) for key in keys if key.startswith(f"{name}.")]
        given = named.get(name)
        rows += aggregator_rows(given) if name == "aggregator" and given else []
        lines += [*_table(name, rows, SECTION_TEXTS.get(name, ""))] if rows else []
        options = {"method": method_options, "data": source_options}.get(name)
        if given and options and options(given).model_fields:
            lines += [*_table(f"options of {given}", option_rows(options(given), f"--{name}."))]
    if not in_full:
        lines.append(f"These are {len(keys)} of {len(known)} keys; --help-all lists all.")
    return "\n".join(lines).rstrip()


def method_options(name: str) -> type[BaseModel]:
    """Raises ConfigError for an unknown method."""
    return methods.load(name).Options


def source_options(name: str) -> type[BaseModel]:
    """The keys `data.*` of a data set; of a function those for reading its items. Raises ConfigError."""
    from fedbench.data import sources

    source = sources.load(name)
    if isinstance(source, ModuleType):
        return source.Options
    from fedbench.data.sources.factory import Reading

    return Reading


def option_rows(options: type[BaseModel], prefix: str) -> list[HelpRow]:
    """One row per field of a method's Options."""
    also = {name: symbol for symbol, name in methods.symbols(options).items()}
    names = [f"{prefix}{key}" + (f", {prefix}{also[key]}" if key in also else "") for key in options.model_fields]
    return [(name, _describe_key(field)) for name, field in zip(names, options.model_fields.values(), strict=True)]


def aggregator_rows(name: str) -> list[HelpRow]:
    """An aggregator's description and one row per option. Raises ConfigError."""
    line = (rules.load(name).__doc__ or "").partition("\n")[0]
    return [(name, line), *option_rows(rules.options_of(name), "--aggregator.")]


def table_lines(rows: Iterable[HelpRow]) -> Iterator[str]:
    """Formats two columns and wraps the right one to the terminal."""
    width = terminal_width()
    for left, right in rows:
        wrapped = textwrap.wrap(right, width - INDENT, break_on_hyphens=False) or [""]
        head = f"  {left}".ljust(INDENT)
        if len(head) > INDENT or not head.endswith(" "):
            yield f"  {left}"
            head = " " * INDENT
        yield head + wrapped[0]
        yield from (" " * INDENT + line for line in wrapped[1:])


def _table(title: str, rows: Iterable[HelpRow], note: str = "") -> Iterator[str]:
    yield title
    yield from table_lines(rows)
    if note:
        yield f"  {note}"
    yield ""


def _flag_row(flag: Flag) -> HelpRow:
    return f"--{flag.name} {flag.metavar}".rstrip(), flag.description


def _key_row(key: str, field: FieldInfo) -> HelpRow:
    from fedbench.data.partitions.scheme import readers  # imports NumPy, which other errors need not wait for

    text = _describe_key(field, readers(key.removeprefix("partition.")) if key.startswith("partition.") else ())
    return f"--{flag_of(key)}", text


def _describe_key(field: FieldInfo, schemes: Sequence[str] = ()) -> str:
    """schemes: those of partitioning that read the key."""
    default = field.get_default(call_default_factory=True)
    shown = "none" if default is None else yaml_value(default)
    about = f"{field.description or ''}" + (f" ({', '.join(schemes)})" if schemes else "")
    return f"{about} [{legal_of(field)}; default {shown}]".strip()


def config_text(config: Config, tuning: Tuning | None = None, live: Collection[str] = ()) -> str:
    """The configuration with the method's defaults, as YAML that --config reads; comments mark changed values.

    live: dotted keys that are set. The others stand behind `#`, so that the text is read as the same configuration:
    a key that is set is not tuned, for one. Values that depend on data or machine stay `auto`; a run writes the
    resolved values next to its results. Raises ConfigError for options that the method does not have.
    """
    kind = methods.load(config.method.name)
    options = methods.checked_options(config.method).model_dump(mode="json")
    defaults = flat(Config().model_dump(mode="json"))
    defaults |= {f"method.{key}": field.get_default() for key, field in kind.Options.model_fields.items()}
    tree = config.model_dump(mode="json")
    tree["method"] = {"name": config.method.name, **options}
    of_method = {key: v for key, v in kind.train_defaults.items() if key not in config.train.model_fields_set}
    tree["train"] |= of_method
    chosen = rules.checked_options(config.aggregator)
    tree["aggregator"] |= chosen.model_dump(mode="json")
    defaults |= {f"aggregator.{key}": field.get_default() for key, field in type(chosen).model_fields.items()}
    defaults |= {f"train.{key}": value for key, value in of_method.items()}
    live = {methods.full_key(config.method.name, key) for key in live}
    if tuning is not None:
        tree["tuning"] = tuning.model_dump()
        defaults |= flat({"tuning": type(tuning)().model_dump()})
        live |= {f"{TUNING_PREFIX}{key}" for key in tuning.model_fields_set}
    return "\n".join(_config_lines(tree, defaults, live))


def _config_lines(tree: dict[str, Any], defaults: dict[str, Any], live: Set[str]) -> Iterator[str]:
    for name, value in tree.items():
        if not isinstance(value, dict):
            yield _value_line("", name, name, value, defaults, live)
            continue
        keys = {key: f"{name}.{key}" for key in value}
        yield f"{'#' * live.isdisjoint(keys.values())}{name}:"
        yield from (_value_line("  ", key, keys[key], inner, defaults, live) for key, inner in value.items())


def _value_line(indent: str, name: str, key: str, value: Any, defaults: dict[str, Any], live: Set[str]) -> str:
    line = f"{indent}{'#' * (key not in live)}{name}: {yaml_value(value)}"
    if key in defaults and defaults[key] == value:
        return line
    was = f"default {yaml_value(defaults[key])}" if key in defaults else "set"
    return f"{line:<40}  # {was}"
