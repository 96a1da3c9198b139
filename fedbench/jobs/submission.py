"""Runs a command as a job on a cluster of which only the dashboard can be reached, and brings its results home.

`python -m fedbench.jobs.submission FOLDER` prints the files of a study there; this is how they come through the
dashboard, which hands out what jobs print and nothing else.
"""

import asyncio
import json
import logging
import re
import shlex
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import compress, decompress

from fedbench.errors import ConfigError, first_line
from fedbench.jobs.folder_sync import FileServer, file_names, read_files
from fedbench.jobs.run_folder import relative_path
from fedbench.results.plan import Plan, studies_in
from fedbench.silence import silence_logger

RESULTS = re.compile(r"^results: (.+)$", re.MULTILINE)
"""The line in which a command names its folder."""
LEFT_THERE = {"checkpoint", "models", "predictions", "wandb", "tune"}
"""Folders that stay on the cluster, because they may be large."""
FILE, PLACE = "file", "place"


class Ending(NamedTuple):
    """Whether the command succeeded, and the folder of its results here; None if nothing came."""

    succeeded: bool
    folder: Path | None


def dashboard_client(url: str) -> Any:
    """Ray's client of the jobs of a cluster. url: of its dashboard. Raises ConfigError if none answers."""
    try:
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(url)
    except Exception as error:  # Ray raises bare ones
        raise ConfigError(
            f"resources.address = {url}: no dashboard of Ray answers there ({first_line(error)}); keep `ray dashboard "
            "FILE` running"
        ) from None


def run_there(client: Any, words: Sequence[str], home: Path, say: Callable[[str], None]) -> Ending:
    """Run a command of fedbench in the home folder of a cluster's head; its results come below `home`.

    words: the command and its flags. say: gets its output as it comes.
    """
    succeeded, text = _output_of(client, shlex.join(["fedbench", *words]), say)
    if not (found := RESULTS.findall(text)):
        return Ending(succeeded, None)
    complete, files = _output_of(client, shlex.join(["python", "-m", "fedbench.jobs.submission", found[-1]]))
    return Ending(succeeded, unpack(files, home) if complete else None)


def _output_of(client: Any, line: str, say: Callable[[str], None] = lambda text: None) -> tuple[bool, str]:
    """Whether a shell line that runs as a job has succeeded, and its output."""
    number = client.submit_job(entrypoint=f"cd && {line}")

    async def follow() -> None:
        async for text in client.tail_job_logs(number):
            say(text)

    # After a lost connection, what is known of the job is asked below.
    with suppress(RuntimeError), silence_logger("ray.dashboard.modules.job.sdk", logging.WARNING):
        asyncio.run(follow())
    succeeded = getattr(client.get_job_status(number), "value", "") == "SUCCEEDED"
    return succeeded, client.get_job_logs(number)


def lines_of_files(folder: Path) -> Iterator[str]:
    """The files of a study and of its runs as lines, after one with its place below the home folder."""
    place = relative_path(folder, Path.home())
    yield json.dumps({PLACE: f"results/{folder.name}" if place.startswith("..") else place})
    folder = folder.resolve()
    runs = [(study / entry.path).resolve() for study in studies_in(folder) for entry in Plan.read(study).entries]
    for own in dict.fromkeys([folder, *(run for run in runs if not run.is_relative_to(folder))]):
        names = [name for name in file_names(own) if LEFT_THERE.isdisjoint(Path(name).parts)]
        for name, content in read_files(own, names).items():
            yield json.dumps({FILE: relative_path(own / name, folder), "is": b64encode(compress(content)).decode()})


def unpack(text: str, home: Path) -> Path | None:
    """Write the files that `lines_of_files` has put into lines; returns the study's folder. Other lines are skipped."""
    place, files = None, dict[str, bytes]()
    for line in text.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            found = json.loads(line)
            place = found.get(PLACE, place)
            if FILE in found:
                files[found[FILE]] = decompress(b64decode(found["is"]))
    if place is None:
        return None
    folder = home / place
    for name in files:
        if not (folder / name).resolve().is_relative_to(home.resolve()):
            raise ConfigError(f"{name}: a file of a study must lie below {home}; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    FileServer().write(folder, files, [*files, *file_names(folder)])
    return folder


if __name__ == "__main__":
    for row in lines_of_files(Path(sys.argv[1])):
        print(row)
