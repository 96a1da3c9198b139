"""A command that runs on a cluster behind its dashboard: its output is shown here, and its results come home."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbench.errors import ConfigError
from fedbench.jobs.submission import dashboard_client, lines_of_files, run_there, unpack
from fedbench.results.plan import Plan
from fedbench.studies.grid import grid
from tests.runtime.rounds import small


class Dashboard:
    """Stands in for Ray's client of jobs: `fedbench` makes a grid below another home, and other lines are run here."""

    def __init__(self, home: Path, succeeds: bool = True) -> None:
        self.home, self.succeeds, self.lines = home, succeeds, list[str]()

    def submit_job(self, entrypoint: str) -> str:
        self.lines.append(entrypoint)
        return str(len(self.lines) - 1)

    def get_job_logs(self, number: str) -> str:
        words = shlex.split(self.lines[int(number)].removeprefix("cd && "))
        if words[0] == "fedbench":
            return f"tuning: 2 runs\nresults: {self.home}/results/grid/mine\nreport:  somewhere\n"
        assert words[:3] == ["python", "-m", "fedbench.jobs.submission"]
        return "a warning of Ray\n" + "\n".join(lines_of_files(Path(words[3])))

    async def tail_job_logs(self, number: str):
        for line in self.get_job_logs(number).splitlines(keepends=True)[:2]:
            yield line
        raise RuntimeError("the connection closed")

    def get_job_status(self, number: str) -> SimpleNamespace:
        return SimpleNamespace(value="SUCCEEDED" if self.succeeds else "FAILED")


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """The home of a head on which a grid has ended, with its runs beside it, as without --out."""
    home = tmp_path_factory.mktemp("head")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        asked = small("fedprox", rounds=1, seeds=[0], name="mine")
        grid(asked, space={"method.mu": [0.01, 0.1]}, baselines=[], tune_seeds=[90], at_once=1)
    return home


def test_output_is_shown_and_the_page_comes_home_with_the_records_of_its_runs(there, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(there))
    said, client = [], Dashboard(there)
    words = ["grid", "--method", "fedprox", "--space", "method.mu=0.01, 0.1", "--address", "auto"]
    ending = run_there(client, words, tmp_path, said.append)
    assert client.lines[0] == "cd && fedbench grid --method fedprox --space 'method.mu=0.01, 0.1' --address auto"
    assert said[0] == "tuning: 2 runs\n"
    assert (ending.succeeded, ending.folder) == (True, tmp_path / "results" / "grid" / "mine")
    for name in ("report.html", "plan.json"):
        assert (ending.folder / name).read_bytes() == (there / "results/grid/mine" / name).read_bytes()
    records = Plan.read(ending.folder).records(ending.folder, only_done=True)
    assert list(records) == ["fedprox"]
    assert list(records["fedprox"].metrics()["round"].unique()) == [1]
    assert not list(tmp_path.rglob("tune"))


def test_what_is_here_already_stays(there, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(there))
    mine = tmp_path / "results" / "grid" / "mine" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    unpack("\n".join(lines_of_files(there / "results/grid/mine")), tmp_path)
    assert mine.read_text() == "mine"


def test_a_command_that_fails_without_results_brings_nothing(there, tmp_path):
    client = Dashboard(there, succeeds=False)
    assert run_there(client, ["grid"], tmp_path, lambda text: None) == (False, None)


def test_a_file_outside_the_folder_is_refused(tmp_path):
    lines = '{"place": "results/mine"}\n{"file": "../../../else.txt", "is": "eJwDAAAAAAE="}'
    with pytest.raises(ConfigError, match=r"must lie below .*; nothing was written"):
        unpack(lines, tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_no_dashboard_is_one_line():
    with pytest.raises(ConfigError, match=r"no dashboard of Ray answers there .*; keep `ray dashboard FILE` running"):
        dashboard_client("http://127.0.0.1:1")
