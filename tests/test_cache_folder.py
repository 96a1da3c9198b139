"""Where the cache is."""

from pathlib import Path

from fedbench.cache_folder import root


def test_the_cache_is_where_its_variable_says_or_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "kept"))
    assert root() == tmp_path / "kept"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", None):
        monkeypatch.setenv("FEDBENCH_CACHE", unset) if unset is not None else monkeypatch.delenv("FEDBENCH_CACHE")
        assert root() == Path(tmp_path / ".cache" / "fedbench")
