"""What a grid tries: one file per method.

SPACE: dotted configuration keys and the values to try, small enough for digits with an mlp. PAPER: what the method's
paper names. OPTIMIZER (optional): the optimiser for which the rates of both are: sgd (the default of fedbench's own
files), adam, adamw, or module for factors of the rates of a model's own optimiser (train.lr_scale); where another one
makes the steps, those of SPACE are turned into its rates. CONSTRAINT (optional): a function of one cell's values that
says whether the cell is worth a run.
"""
