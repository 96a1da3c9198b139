"""`--address http://HOST:8265`: a command as a job on the cluster with this dashboard; its results come home."""

import sys
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from fedbench.cli import FAILED, OK, command

FLAG = "--address"
DASHBOARDS = (f"{FLAG}=http://", f"{FLAG}=https://")


def dashboard_in(words: Sequence[str]) -> str | None:
    """The address of a dashboard among the words of a command; None if there is none."""
    given = [*words, *map("=".join, pairwise(words))]
    found = [word.removeprefix(f"{FLAG}=") for word in given if word.startswith(DASHBOARDS)]
    return found[-1] if found else None


def in_cluster(words: Sequence[str], url: str) -> list[str]:
    """The words of the same command on a machine of the cluster."""
    return [word.replace(url, "auto") if word in (url, f"{FLAG}={url}") else word for word in words]


@command
def main(argv: list[str]) -> int:
    """Runs the command, whose first word is its name, shows its output, and says where its page is here."""
    from fedbench.jobs.submission import dashboard_client, run_there

    url = dashboard_in(argv) or ""
    try:
        ending = run_there(dashboard_client(url), in_cluster(argv, url), Path.cwd(), partial(print, end="", flush=True))
    except KeyboardInterrupt:
        print("the command goes on on the cluster; repeat it to see how it ends", file=sys.stderr)
        raise
    if ending.folder is not None:
        print(f"here:    {ending.folder / 'report.html'}")
    else:
        print("fedbench: the results stay on the cluster: `ray rsync-down FILE` fetches them", file=sys.stderr)
    return OK if ending.succeeded and ending.folder else FAILED
