"""What a study is: a run, a grid."""
