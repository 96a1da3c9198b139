"""Converts a command line to a configuration."""

import logging
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fedbench.aggregation.rules import AGGREGATORS
from fedbench.cache_folder import root
from fedbench.cli.exits import OK, PrintedExit
from fedbench.cli.flags import COMMON, TUNING_PREFIX, Flag, keys_of_command, merge_layers, read
from fedbench.cli.help import config_text, help_text
from fedbench.cli.kept_answers import Question
from fedbench.cli.lines import loading, terminal_width
from fedbench.cli.pipes import keep_piped_files
from fedbench.config import Config
from fedbench.config.keys import flat, nest
from fedbench.config.tuning import ComparisonTuning, Tuning
from fedbench.data import sources
from fedbench.data.partitions.scheme import SCHEMES
from fedbench.errors import ConfigError, nearest
from fedbench.installation import require
from fedbench.methods import METHODS
from fedbench.models import MODELS
from fedbench.tasks import TASKS

log = logging.getLogger("fedbench")


def parse(
    argv: Sequence[str],
    extra_flags: Sequence[Flag] = (),
    prog: str = "fedbench run",
    preview: Callable[[Config, Namespace], tuple[Config, Iterable[str]]] = lambda config, args: (config, ()),
    about: str = "",
    check: Callable[[Config, Namespace], None] = lambda config, args: None,
    tuning: type[Tuning] | None = None,
) -> tuple[Config, Namespace]:
    """The configuration from the flags, and the flags that are not part of it.

    Of these, `given` has the keys that are set without the preset, `tuning` the section of a command that tunes, and
    `question` what the answer of a finished study is kept under.

    Prints and exits for --help, --help-all and --print-config, and where the answer is known. preview: returns the
    configuration to print, and extra lines. about: the command's description in --help. check: raises ConfigError for
    what the command cannot do, before PyTorch is loaded. tuning: the section of a command that tunes. Raises
    ConfigError.
    """
    flags = {flag.name: flag for flag in (*extra_flags, *COMMON)}
    args, pairs = read(argv, flags, keys_of_command(tuning))
    if args.help or args.help_all:
        named = {section: pairs.get(f"{section}.name") for section in ("method", "aggregator", "data")}
        print(help_text(prog, extra_flags, named, about, args.help_all, tuning))
        raise PrintedExit(OK)
    pairs_of_all = merge_layers(args.preset, args.config, pairs)
    args.tuning = _take_tuning(pairs_of_all, tuning, prog)
    config = Config(**nest(pairs_of_all))
    args.given = {*merge_layers(None, args.config, pairs)}
    check_known_names(config)
    keep_piped_files(config)
    check_extras(config)
    check(config, args)
    args.question = question_of(prog, config, args)
    _print_known_answer(args)
    loading()
    if args.print_config:
        _print_config(config, args, preview)
    return config, args


def _print_known_answer(args: Namespace) -> None:
    """Prints the answer of a study that is finished, or the configuration, and exits; nothing if it is not known."""
    if (known := args.question.known()) is None:
        return
    if not args.print_config:
        log.info("finished before, and nothing has changed since")
    print(known)
    raise PrintedExit(OK)


def _print_config(
    config: Config, args: Namespace, preview: Callable[[Config, Namespace], tuple[Config, Iterable[str]]]
) -> NoReturn:
    """Prints the configuration with the lines of a preview, keeps it as an answer, and exits."""
    given = flat(config.given()).keys()
    shown, lines = preview(config, args)
    text = config_text(shown, args.tuning, given & flat(shown.given()).keys())
    text = "\n".join([text, *(f"# {line}" for line in lines)])
    args.question.keep(text, [(config.out or Path("results")).absolute(), *decoded()])
    print(text)
    raise PrintedExit(OK)


def question_of(prog: str, config: Config, args: Namespace) -> Question:
    """What decides the answer of a command that runs what is missing, or prints what it would run.

    It can be kept only if fedbench and what plugs in decide it: no other code and no file of the user's, machines or
    accounts. These have a colon or a slash in their names, or keys of their own.
    """
    given = {name: value for name, value in vars(args).items() if name not in ("config", "tuning", "debug")}
    tuning = args.tuning.model_dump(mode="json") if args.tuning else None
    words = [prog, config.model_dump(mode="json"), {**given, "given": sorted(args.given)}, tuning]
    texts = [text for text in texts_in(words[1:]) if text != str(config.out)]
    files = [key for key, value in flat(config.model_dump()).items() if isinstance(value, Path) and key != "out"]
    elsewhere = config.resources.address != "local" or files or config.loggers
    # Data that are fetched, imported again or decoded later change an answer, too.
    fetched = [(str(path), path.stat().st_mtime_ns) for path in (root() / "files").glob("*") if path.is_dir()]
    here = sorted(str(path.parent) for path in decoded()), sorted(fetched)
    words += [terminal_width(), here]
    return Question(words, may_be_kept=not elsewhere and not any(":" in text or "/" in text for text in texts))


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (str(key), *texts_in(inner))
    elif isinstance(value, Iterable):
        for inner in value:
            yield from texts_in(inner)


def decoded() -> list[Path]:
    """The files that name the content of decoded data."""
    return [*(root() / "decoded").glob("*/meta.json")]


def _take_tuning(pairs: dict[str, Any], kind: type[Tuning] | None, prog: str) -> Tuning | None:
    """Takes the keys of tuning out of others; None of a command that does not tune.

    A file may have keys that only another command heeds, so that one file serves several. Raises ConfigError.
    """
    given = {key.removeprefix(TUNING_PREFIX): pairs.pop(key) for key in [*pairs] if key.startswith(TUNING_PREFIX)}
    if idle := (given.keys() & ComparisonTuning.model_fields.keys()) - (kind.model_fields.keys() if kind else set()):
        line = ", ".join(f"{TUNING_PREFIX}{key}" for key in given if key in idle)
        logging.getLogger("fedbench").warning("no effect on %s: %s", prog, line)
    tuning = (kind or ComparisonTuning)(**{key: value for key, value in given.items() if key not in idle})
    return tuning if kind else None


def check_known_names(config: Config) -> None:
    """Raises ConfigError for names that nothing has. Does not load PyTorch, so that a typing error costs no wait."""
    METHODS.check_known(config.method.name)
    AGGREGATORS.check_known(config.aggregator.name)
    sources.check_known(config.data.name)
    SCHEMES.check_known(config.partition.name)
    if config.data.task not in sources.CHOSEN:
        TASKS.check_known(config.data.task)
    for name in config.model.names:
        if name != "auto":
            MODELS.check_known(name)


def check_extras(config: Config) -> None:
    """Raises ConfigError if libraries are not installed that the configuration asks for. Imports none of them."""
    resources = config.resources
    if resources.hosts not in (0, "auto") or resources.address != "local":
        require("ray", "use --hosts 0")
    if "wandb" in config.loggers:
        require("wandb")


def study_folder(argv: Sequence[str], command: str) -> Path:
    """The folder given as the first word of a command. Raises ConfigError."""
    if not argv or argv[0].startswith("-"):
        raise ConfigError(
            f"{command}: give the folder of a study first, for example `fedbench {command} results/grid/NAME`"
        )
    folder = Path(argv[0]).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; give the folder of a run or of a study")
    return folder


def read_flags(argv: Sequence[str], command: str, flags: Sequence[Flag]) -> tuple[Path, Namespace]:
    """The folder of a study and the flags of a command that takes no keys of the configuration. Raises ConfigError."""
    folder, known = study_folder(argv, command), {flag.name: flag for flag in flags}
    for word in argv[1:]:
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name not in known:
            raise ConfigError(f"unknown flag --{name}: {nearest(name, known)}; see fedbench {command} --help")
    return folder, read(argv[1:], known)[0]
