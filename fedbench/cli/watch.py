"""`fedbench watch DIR`: shows the report of a run or a study live in a browser."""

from functools import partial

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag
from fedbench.cli.parse import read_flags
from fedbench.config.files import parse_value
from fedbench.errors import ConfigError

USAGE = """usage: fedbench watch DIR [--port N]

Serves the report of a run, grid or comparison on this machine and updates it while it is open in a browser and runs
continue; Ctrl-C stops it. Other machines need a tunnel: with --port 8420 here, `ssh -L 8420:localhost:8420 HOST` there.
"""
FLAGS = (Flag("port", "port to listen on [whole number from 0 to 65535; default 0: any free port]", "N"),)


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Serves the report until interrupted."""
    folder, args = read_flags(argv, "watch", FLAGS)
    from fedbench.report.live import serve

    with serve(folder.absolute(), read_port(args.port)) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/ shows {folder.absolute()}; Ctrl-C stops it", flush=True)
        server.serve_forever()
    return OK


def read_port(text: str | None) -> int:
    """Reads a port; 0 means any. Raises ConfigError."""
    value = 0 if text is None else parse_value(text)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**16:
        raise ConfigError(f"--port {text}: must be a whole number from 0 to 65535")
    return value
