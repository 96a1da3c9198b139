"""The schemes, one file each: a module `NAME.py` holds `SCHEME`, which users ask for as `--partition NAME`."""
