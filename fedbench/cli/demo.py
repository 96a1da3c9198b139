"""`fedbench demo`: a first comparison, from nothing to a verdict."""

from functools import partial

from fedbench.cli import command, grid
from fedbench.errors import ConfigError

WORDS = ("--method", "fedcac", "--until-decided", "--margin", "2")
"""What it gives to `fedbench grid`."""
AS_GRID = f"fedbench grid {' '.join(WORDS)}"
USAGE = (
    "usage: fedbench demo\n\n"
    "A first comparison, on data that come with scikit-learn: tunes FedCAC, local training, training on pooled data\n"
    "and fine-tuned FedAvg alike, and adds seeds until tests separate them. The same as:\n\n"
    f"  {AS_GRID}"
)
PLAN = f"""\
Which is better on handwritten digits that ten clients hold, each mostly some of the classes: federated learning by
FedCAC, fine-tuned FedAvg, each client alone, or one model on pooled data? This
  1. tunes the four alike, on validation data and with seeds that are not used again,
  2. runs the best setting of each over five seeds,
  3. adds seeds until tests separate FedCAC from the others, or show that they differ by less than 2 points,
  4. prints the answer and the path of a page with tables and curves.
It takes 5 to 15 minutes on two cores, less on more; a line below says how long here. Ctrl-C stops it, and the same
command continues. It is {AS_GRID}.
"""


@partial(command, usage=USAGE)
def main(argv: list[str]) -> int:
    """Says what it will do and for how long, and does it; ends with the answer and the path of the page."""
    if argv:
        raise ConfigError(f"demo {' '.join(argv)}: takes no flags; to vary it, add them to {AS_GRID}")
    print(PLAN, flush=True)
    return grid.main([*WORDS])
