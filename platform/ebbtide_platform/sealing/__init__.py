"""Sealed segments: names that cannot be guessed, chunks that open only as what they are, keys on lease."""
