"""The script beside a model's weights: it makes the model, reads samples or rows of a table, and prints predictions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from fedbench.data.reading.texts import DECIMAL, NO_NUMBER, NUMBER, TRUTH

About = Mapping[str, Any]
"""The content of model.json (`about_model`)."""
TEMPLATE = "predict.py.j2"


def from_run(about: About, base: str | None) -> str:
    """The script in a run's folder, which has weights for each point. base: the file of the frozen parameters."""
    weights = 'load_file(here / f"{point}.safetensors")'
    return _of_weights(about, f'load_file(here.parent / "{base}") | {weights}' if base else weights, point=True)


def from_weights(about: About, file: str) -> str:
    """The script beside a whole state dict."""
    return _of_weights(about, f'load_file(here / "{file}")')


def from_program(about: About, file: str) -> str:
    """The script beside a program of torch.export, which normalises its input."""
    return _script(about, "program", file, ["import torch"])


def from_onnx(about: About, file: str) -> str:
    """The script beside a program of ONNX, which normalises its input."""
    return _script(about, "onnx", file, ["import onnxruntime"])


def _of_weights(about: About, weights: str, point: bool = False) -> str:
    imports = ["import torch", *about["imports"], "from safetensors.torch import load_file"]
    return _script({"call": "", **about}, "weights", weights, imports, point)


def _script(about: About, form: str, file: str, imports: Sequence[str], point: bool = False) -> str:
    """The script. form: of the model; file: its file, or what loads its weights; point: whether there are several."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    columns = about.get("columns", [])
    return templates.get_template(TEMPLATE).render(
        about=about,
        form=form,
        file=file,
        imports=imports,
        packages=dict.fromkeys(line.split()[1].partition(".")[0] for line in ["import numpy", *imports]),
        structure=next(iter((about.get("fields") or {}).get("sample") or {}), ""),  # dict or tuple of several arrays
        cells=bool(columns) and all(column["kind"] != "list" for column in columns),
        fills=any("fill" in column for column in columns),
        missing=NO_NUMBER,
        number=repr(NUMBER),
        decimal=repr(DECIMAL),
        truth=repr(TRUTH),
        point=point,
        names=class_names(about),
    )


def class_names(about: About) -> list[str]:
    """The names of the classes of which outputs give probabilities; none of other tasks."""
    if about["task"] == "binary":
        return [*(about["classes"] or ("0", "1"))]
    return [*about["classes"]] if about["task"] == "classification" else []
