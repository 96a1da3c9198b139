"""What the protocol says of local training is that of the runs."""

import json

from fedbench.report.protocol import protocol
from fedbench.report.study import Study
from tests.report.conftest import write_comparison


def test_the_size_of_models_is_said_if_all_have_the_same(tmp_path):
    folder = write_comparison(tmp_path, {"local": 0.7, "fedper": 0.8})
    files = [run.path / "environment.json" for run in Study.load(folder).runs.values()]
    for other, words in ((4810, " (4,810 parameters) for 5 local epochs"), (5000, "")):
        for file, size in zip(files, [4810] * (len(files) - 1) + [other], strict=True):
            known = json.loads(file.read_text())
            file.write_text(json.dumps(known | {"models": {"mlp": {"parameters": size, "shared": 0}}}))
        said = protocol(folder, {})
        assert words in said
        assert ("parameters)" in said) == bool(words)
