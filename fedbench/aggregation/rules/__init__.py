"""The aggregators, one file each: a module `my_rule.py` holds the one class that `--aggregator my-rule` runs."""
