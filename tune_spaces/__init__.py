"""What a grid tries: one file per method.

SPACE: dotted configuration keys and the values to try, small enough for digits with an mlp. PAPER: what the method's
paper names. CONSTRAINT (optional): a function of one cell's values that says whether the cell is worth a run.
"""
