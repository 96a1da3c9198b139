"""A user's class or function by its name."""

import sys
from argparse import ArgumentParser

import pytest

from fedbench.errors import ConfigError
from fedbench.import_string import import_string

PARSER = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--hidden', type=int, default=32)\n"
MODULES = {
    "broken": "1 / 0\n",
    "ends": "import sys\nsys.exit(0)\n",
    "fails": "raise SystemExit('no data')\n",
    "script": f"{PARSER}args = parser.parse_args()\n",
    "needy": f"{PARSER}parser.add_argument('--x', required=True)\nparser.parse_known_args()\n",
    "plain": "import pytorch_lightning as pl\n",
}


def test_a_function_of_a_module():
    assert import_string("os.path:join", "model")("a", "b") == "a/b"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere.to_be:Found", "model 'nowhere.to_be:Found': module nowhere.to_be cannot be imported"),
        ("broken:Net", "importing broken failed (ZeroDivisionError: division by zero, broken.py:1)"),
        ("textwrap:wrapp", "module textwrap has no wrapp; did you mean wrap"),
        ("textwrap", "module textwrap has no empty name"),
        ("my_net.py:Net", "model 'my_net.py:Net': a module is expected, not a file: leave out .py, my_net:Net"),
        ("./my_net.py:Net", "leave out .py, my_net:Net"),
        ("nets/my_net.py:Net", "leave out .py, nets.my_net:Net"),
        ("/home/me/my_net.py:Net", "not a file: start in /home/me and write my_net:Net"),
        ("../my_net.py:Net", "not a file: start in .. and write my_net:Net"),
        ("ends:Net", "module ends ends the program when it is imported (exit code 0); put what a script does below"),
        ("fails:Net", "module fails ends the program when it is imported (exit code no data); put what"),
        (
            "script:Net",
            "module script reads the command line when it is imported (unrecognized arguments: --rounds 3); put what "
            'a script does below `if __name__ == "__main__":`',
        ),
        ("needy:Net", "needy reads the command line when it is imported (the following arguments are required: --x)"),
        ("plain:Net", "); write lightning.pytorch for pytorch_lightning in its imports, the classes are the same"),
        ("__main__:Mine", "only the process that defines Mine knows it: write it into a file, or stay in that process"),
    ],
)
def test_what_cannot_be_imported_is_one_line(path, said, tmp_path, monkeypatch, capsys):
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["fedbench", "--rounds", "3"])
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)  # as if it were not installed
    with pytest.raises(ConfigError) as caught:
        import_string(path, "model")
    assert said in str(caught.value)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit):  # argparse is as it was
        ArgumentParser().parse_args(["--unknown"])
