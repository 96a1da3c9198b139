"""A user's class or function by its name."""

import pytest

from fedbench.errors import ConfigError
from fedbench.import_string import import_string


def test_a_function_of_a_module():
    assert import_string("os.path:join", "model")("a", "b") == "a/b"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere.to_be:Found", "model 'nowhere.to_be:Found': module nowhere.to_be cannot be imported"),
        ("broken:Net", "importing broken failed (ZeroDivisionError: division by zero, broken.py:1)"),
        ("textwrap:wrapp", "module textwrap has no wrapp; did you mean wrap"),
        ("textwrap", "module textwrap has no empty name"),
        ("__main__:Mine", "only the process that defines Mine knows it: write it into a file, or stay in that process"),
    ],
)
def test_what_cannot_be_imported_is_one_line(path, said, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        import_string(path, "model")
    assert said in str(caught.value)
