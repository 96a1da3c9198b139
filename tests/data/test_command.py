"""fedbench data."""

from fedbench.cli.data import main


def test_it_says_what_the_set_holds(capsys, cache_folder):
    assert main(["digits", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["data", "digits"]
    assert "images    1438 train, 359 test" in lines
    assert "check     as decoded" in lines
    assert str(cache_folder) in lines[-2]
    assert lines[-2].endswith("MB)")


def test_import_then_options(capsys, mnist_folder):
    assert main(["mnist", "--from", str(mnist_folder)]) == 0
    assert "20 train, 10 test" in capsys.readouterr().out


def test_check_fails_for_a_damaged_cache(capsys, cache_folder):
    main(["digits"])
    file = next((cache_folder / "decoded").glob("digits-*/images.npy"))
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    assert main(["digits", "--check"]) == 1
    assert "damaged" in capsys.readouterr().out


def test_mistakes_are_one_line(capsys):
    for argv, text in (
        (["cifr10"], "unknown data set 'cifr10': did you mean cifar10"),
        (["digits", "--chek"], "unknown flag --chek: did you mean --check"),
        (["--check"], "the name of the data set comes first"),
        (["digits", "--data.size", "3"], "unknown key data.size"),
        (["digits", "--data.root", "/tmp"], "digits come with scikit-learn"),
    ):
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
