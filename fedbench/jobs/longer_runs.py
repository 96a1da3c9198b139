"""A run that continues one with fewer rounds."""

import shutil
from pathlib import Path

from fedbench.checksums import with_checksum
from fedbench.config import Config
from fedbench.config.words import plural
from fedbench.errors import ConfigError
from fedbench.jobs.folder_locks import locked_folder
from fedbench.jobs.kept_files import kept_config
from fedbench.jobs.run_names import changed_keys, is_finished
from fedbench.results.files import write_atomically
from fedbench.results.plan import Plan, is_study
from fedbench.runtime.drive import only_driver
from fedbench.runtime.kept.paths import MODELS_FOLDER
from fedbench.runtime.states import checkpoint


def shorter_run(folder: Path, config: Config) -> Config | None:
    """The configuration of the run in a folder if it has fewer rounds and is the same otherwise."""
    if (folder / "config.yaml").exists():
        before = kept_config(folder)
    elif is_study(folder) and (plan := Plan.read(folder)).kind == "run":  # of several seeds, not merged yet
        before = Config(**plan.config)
    else:
        return None
    same = not changed_keys(before.model_copy(update={"rounds": config.rounds}), config)
    return before if same and before.rounds < config.rounds else None


def check_longer(folder: Path, before: Config, rounds: int) -> bool:
    """Whether a run with fewer rounds has a checkpoint to continue from. Raises ConfigError if it cannot continue.

    Not if it has ended without a checkpoint: a new run in its folder would lose its results. Not if its results may
    depend on the number of rounds.
    """
    held = checkpoint.load(folder / "checkpoint")
    if held is None and is_finished(folder):
        raise ConfigError(
            f"{folder} holds a finished run of {plural(before.rounds, 'round')} whose last state was not kept, so it "
            f"cannot continue to {rounds}: give another --out, with --checkpoint.keep if more rounds may follow"
        )
    if held is not None and held["uses_rounds"]:
        raise ConfigError(
            f"{folder} holds a run of {plural(before.rounds, 'round')} that cannot continue to {rounds}: "
            f"{before.method.name} (or the model's configure_optimizers) uses the number of rounds, so that earlier "
            "rounds would be others; give another --out"
        )
    return held is not None


def lengthen(folder: Path, config: Config) -> None:
    """Have the run in a folder end later: it is not finished any more."""
    with only_driver(folder / "config.yaml"):
        (folder / "summary.json").unlink(missing_ok=True)
        write_atomically(folder / "config.yaml", with_checksum(config.to_yaml()))


def copy_progress(source: Path, target: Path) -> None:
    """Have a described run continue from the checkpoint of the same one with fewer rounds, which stays as it is."""
    with locked_folder(source):
        for name in ("metrics.jsonl", "timings.jsonl"):
            if (source / name).exists():
                shutil.copy2(source / name, target / name)
        for name in (MODELS_FOLDER, "checkpoint"):
            files = [path for path in (source / name).rglob("*") if path.is_file()]
            for path in sorted(files, key=lambda path: checkpoint.is_one(path.name)):  # after its shards
                copy = target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
