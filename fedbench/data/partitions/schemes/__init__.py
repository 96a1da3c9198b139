"""The schemes, one file each: a module `NAME.py` holds `SCHEME` for `--partition NAME`."""
