"""`python -m fedbench COMMAND ...`."""

from fedbench.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
