"""`fedbench export RUN --client N`: a kept model for use without the run, or without fedbench."""

from functools import partial

from fedbench.cli import command
from fedbench.cli.exits import OK
from fedbench.cli.flags import Flag
from fedbench.cli.lines import loading
from fedbench.cli.parse import read_flags
from fedbench.config.tuning import POINTS
from fedbench.errors import ConfigError

USAGE = """usage: fedbench export RUN --client N [--point POINT] [--seed S] [--format FORMAT] [--out DIR]

Writes a model that a run kept with --save-models into a folder of its own, with model.json (shape, normalisation,
names of the classes, columns of a table) and predict.py, which prints predictions for a file of samples, or for a CSV
of the table's raw rows.

  --client N       the client's number, or global
  --point POINT    after_agg (default), the model after the last round, or after_fit, after the client's last training
  --seed S         by default the first seed of the run
  --format FORMAT  safetensors (default): the weights, for the model's own class;
                   torch.export: a program that needs only torch;
                   onnx: a program for ONNX runtimes (pip install 'fedbench-pfl[onnx]' to write it)
  --out DIR        default: RUN/exported/NAME

Programs take samples as they lie in the data set: the normalisation is inside, and what fills missing numbers."""
FLAGS = (
    Flag("client", "client", "N"),
    Flag("point", "point", "POINT", choices=POINTS),
    Flag("seed", "seed", "S"),
    Flag("format", "format", "FORMAT", choices=("safetensors", "torch.export", "onnx")),
    Flag("out", "folder", "DIR"),
)


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Exports and says where, and how far the program's outputs are from fedbench's."""
    folder, flags = read_flags(argv, "export", FLAGS)
    if flags.client is None:
        raise ConfigError(f"export: whose model? fedbench export {folder} --client 3, or --client global")
    client = flags.client if flags.client == "global" else whole_number("client", flags.client)
    seed = None if flags.seed is None else whole_number("seed", flags.seed)
    loading("reading the model")
    from fedbench.studies.export import export

    made = export(folder, client, flags.format or "safetensors", flags.point or "after_agg", seed, flags.out)
    print(f"model:   {made.file}")
    if made.difference is not None:
        print(f"check:   largest difference from fedbench's outputs {made.difference:.1e}, over {made.samples} samples")
    if made.missing:
        print(f"warning: no predict.py is written, because {made.missing}")
    else:
        print(f"predict: python {made.file.parent / 'predict.py'} SAMPLES")
    return OK


def whole_number(flag: str, text: str) -> int:
    """Reads a whole number from 0. Raises ConfigError."""
    if not text.isdecimal():
        more = " or global" if flag == "client" else ""
        raise ConfigError(f"--{flag} {text}: must be a whole number from 0{more}")
    return int(text)
