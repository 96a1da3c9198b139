"""Lists the decisions of a method where its paper leaves details open, and the run's deviations from the paper."""

from fedbench import methods, tune_space
from fedbench.config import TrainConfig
from fedbench.methods.base import Method
from fedbench.results.plan import text_of


def decisions(method: str, options: Method.Options, train: TrainConfig) -> list[str]:
    """The decisions in the method's file, and the deviations from its paper's training, a line each."""
    return [*methods.load(method).decisions(options), *training_deviations(method, train)]


def training_deviations(method: str, train: TrainConfig) -> list[str]:
    """The `train.*` keys with no value of the paper or its code, as listed in PAPER of its tune space."""
    named = {key: values for key, values in tune_space.paper_axes(method).items() if key.startswith("train.")}
    here = {key: getattr(train, key.removeprefix("train.")) for key in named}
    differ = [key for key, values in named.items() if here[key] not in values]
    said = (f"{key} {' or '.join(map(text_of, named[key]))}, not {text_of(here[key])}" for key in differ)
    return [f"The paper, or its authors' code, trains with {'; '.join(said)}."] if differ else []
