"""The command that makes the papers' tables again."""

from fedbench_papers.tables.command import main


def test_its_help_names_its_flags(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "--cells" in text
    assert "--sources" in text


def test_its_help_says_whose_the_defaults_are(capsys):
    assert main(["--help"]) == 0
    assert "overriding the defaults below: --print-config shows them" in capsys.readouterr().out


def test_lines_of_the_list_are_shown_as_they_come(capsys, monkeypatch):
    shown = []

    def lines(scale):
        yield f"first at scale {scale}"
        shown.append(capsys.readouterr().out)
        yield "second"

    monkeypatch.setattr("fedbench_papers.tables.reproduce.experiments_listing", lines)
    assert main(["--scale", "small"]) == 0
    assert shown == ["first at scale small\n"]
    assert capsys.readouterr().out == "second\n"


def test_the_seed_of_tuning_is_no_final_one(capsys):
    words = ["co-pfl/main", "--cells", "cifar10", "--seeds", "0", "90", "--print-config"]
    assert main(words) == 2
    line = capsys.readouterr().err
    assert "seeds: 90 is the tuning seed" in line
    assert "--tune-seeds" not in line
    assert main(["fedcac/mask-methods", *words[1:]]) == 0  # nothing is tuned


def test_mistakes_are_one_line(capsys):
    assert main(["co-pfl/mian"]) == 2
    assert main(["co-pfl/main", "--cells", "svhn"]) == 2
    assert main(["co-pfl/main", "--sources", "cifra10=x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("fedbench: error: ") for line in lines)


def test_flags_that_it_would_not_heed_are_refused(capsys):
    for words in (["--method.momentum", "0.5"], ["--method.tau", "0.3"], ["--method.buffers", "private"]):
        assert main(["co-pfl/main", "--cells", "cifar10", "--print-config", *words]) == 2
    assert main(["--rounds", "5"]) == 2
    assert main(["--cells", "cifar10", "--scale", "small"]) == 2
    assert main(["--methods", "local"]) == 2
    lines = capsys.readouterr().err.splitlines()
    method = "runs the methods of the paper with its options; leave it out"
    assert lines[0] == f"fedbench: error: --method.momentum: co-pfl/main {method}"
    assert lines[2] == f"fedbench: error: --method.buffers: co-pfl/main {method}"
    assert lines[3] == (
        "fedbench: error: --rounds: changes nothing in the list of experiments; name a PAPER/EXPERIMENT first"
    )
    assert lines[4].startswith("fedbench: error: --cells: changes nothing in the list")
    assert lines[5].startswith("fedbench: error: --methods: changes nothing in the list")


def test_only_some_methods_are_planned(capsys):
    words = ["co-pfl/main", "--cells", "cifar10", "--seeds", "0", "--print-config"]
    assert main([*words, "--methods", "local,fedavg"]) == 0
    text = capsys.readouterr().out
    assert "local: 3 candidates" in text
    assert "fedper" not in text
    assert "# 8 runs, " in text
    assert main([*words, "--methods", "fedavgg"]) == 2
    line = "fedbench: error: --methods fedavgg: no method of co-pfl/main; it has local, fedavg, fedavg-ft, lg-fedavg, "
    assert capsys.readouterr().err.startswith(line)


def test_what_it_would_run_is_shown_without_running_it(capsys, tmp_path):
    words = ["co-pfl/main", "--cells", "cifar10", "--seeds", "0", "--out", str(tmp_path / "out")]
    assert main([*words, "--print-config", "--rounds", "7"]) == 0
    text = capsys.readouterr().out
    assert "name: resnet18" in text
    assert "rounds: 7" in text
    assert "# cifar10, clients=10 s=2 m_bound=50: local: 3 candidates of train.lr" in text
    assert "# 33 runs, " in text
    assert not (tmp_path / "out").exists()
    assert main([*words, "--print-config", "--train.lr", "0.01"]) == 0
    assert "local: 1 candidate of its defaults" in capsys.readouterr().out
    assert main(["co-pfl/main", "--cells", "svhn", "--print-config"]) == 2
