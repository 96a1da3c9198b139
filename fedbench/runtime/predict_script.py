"""The script beside a model's weights: it makes the model, reads samples and prints predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

About = Mapping[str, Any]
"""The content of model.json (`about_model`)."""
POINT = ['point = sys.argv[2] if len(sys.argv) > 2 else "after_agg"']
ONE = [
    "x = numpy.load(sys.argv[1])",
    'assert (x.dtype, [*x.shape[1:]]) == (about["dtype"], about["shape"]), f"SAMPLES are {x.dtype} {[*x.shape]}"',
]
"""Samples on another scale would be predicted, too, but wrongly."""
WITHOUT_GRADIENT = "with torch.no_grad():"


@dataclass(frozen=True)
class Way:
    """A way to make a model. load: the lines that define `model`; array: how it reads one of several NumPy arrays.

    scores: the lines that compute `scores` of samples `x`, which are a NumPy array if they are one.
    """

    imports: Sequence[str]
    load: Sequence[str]
    scores: Sequence[str]
    array: str = "torch.from_numpy({})"


def from_run(about: About, base: str | None) -> str:
    """The script in a run's folder, which has weights for each point. base: the file of the frozen parameters."""
    weights = 'load_file(here / f"{point}.safetensors")'
    weights = f'load_file(here.parent / "{base}") | {weights}' if base else weights
    return _script(
        about, _way_of_weights(about, weights, POINT), " [POINT]", "POINT: after_agg (default) or after_fit."
    )


def from_weights(about: About, file: str) -> str:
    """The script beside a whole state dict."""
    return _script(about, _way_of_weights(about, f'load_file(here / "{file}")'))


def from_program(about: About, file: str) -> str:
    """The script beside a program of torch.export, which normalises its input."""
    load = [f'model = torch.export.load(here / "{file}").module()']
    return _script(about, Way(["import torch"], load, [WITHOUT_GRADIENT, f"    scores = model({_tensors(about)})"]))


def from_onnx(about: About, file: str) -> str:
    """The script beside a program of ONNX, which normalises its input."""
    load = [f'model = onnxruntime.InferenceSession(here / "{file}")']
    arrays = {"dict": "x.values()", "tuple": "x"}.get(_structure(about), "[x]")
    feed = f"dict(zip([given.name for given in model.get_inputs()], {arrays}))"
    return _script(about, Way(["import onnxruntime"], load, [f"scores = model.run(None, {feed})[0]"], array="{}"))


def _way_of_weights(about: About, weights: str, before: Sequence[str] = ()) -> Way:
    load = [*before, *["torch.set_default_dtype(torch.float64)"] * about["double"], f"model = {about['build']}.eval()"]
    load += [*(f"model.{call}" for call in about["calls"]), f"model.load_state_dict({weights})"]
    given, scores = {"keywords": "**x", "arguments": "*x"}.get(about.get("call", ""), _tensors(about)), list[str]()
    if about["mean"]:
        places = ", ".join(["-1", *["1"] * (len(about["shape"]) - 1)])
        scores = [f'mean, std = (torch.tensor(about[key]).view({places}) for key in ("mean", "std"))']
        given = f'({_tensors(about)} / about["unit"] - mean) / std'
    scores += [WITHOUT_GRADIENT, f"    scores = model({given})"]
    if not about["plain"]:
        scores.append("if not torch.is_tensor(scores):")
        scores.append('    scores = scores["logits"] if isinstance(scores, dict) else scores[0]')
    return Way(["import torch", *about["imports"], "from safetensors.torch import load_file"], load, scores)


def _script(about: About, way: Way, usage: str = "", more: str = "") -> str:
    packages = dict.fromkeys(line.split()[1].partition(".")[0] for line in ["import numpy", *way.imports])
    suffix, read = ("npz", _arrays(about, way)) if _structure(about) else ("npy", ONE)
    return "\n".join(
        [
            f'"""Predicts by the model in this folder: python predict.py SAMPLES.{suffix}{usage}',
            "",
            _samples(about),
            *[more] * bool(more),
            f"Needs {', '.join(packages)}.",
            '"""',
            "",
            "import json",
            "import sys",
            "from pathlib import Path",
            "",
            "import numpy",
            *way.imports,
            "",
            "here = Path(__file__).parent",
            'about = json.loads((here / "model.json").read_text())',
            *way.load,
            *read,
            *way.scores,
            *_print_lines(about),
            "",
        ]
    )


def _structure(about: About) -> str:
    """How the arrays of a sample are held: dict or tuple; empty if it is one array."""
    return next(iter((about.get("fields") or {}).get("sample") or {}), "")


def _tensors(about: About) -> str:
    return "x" if _structure(about) else "torch.from_numpy(x)"


def _arrays(about: About, way: Way) -> list[str]:
    own = way.array.format("arrays[name]")
    made = f"{{name: {own} for name in arrays}}" if _structure(about) == "dict" else f"tuple({own} for name in arrays)"
    return ["arrays = numpy.load(sys.argv[1])", f"x = {made}"]


def _samples(about: About) -> str:
    if _structure(about):
        return "SAMPLES: the arrays of n samples, [n, ...] each, under their names or in their order."
    shape = ", ".join(map(str, ["n", *about["shape"]]))
    return (
        f"SAMPLES: {about['dtype']} [{shape}], as in the data"
        + f", from 0 to {about['unit']}" * (about["unit"] > 1)
        + "."
    )


def _print_lines(about: About) -> list[str]:
    if about["task"] == "classification":
        return ['print(*(about["classes"][best] for best in scores.argmax(1)), sep="\\n")']
    return ["print(scores.tolist())"]
