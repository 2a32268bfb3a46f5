"""The processors: one file per stage, the exact curator, and the one file that knows Faust."""
