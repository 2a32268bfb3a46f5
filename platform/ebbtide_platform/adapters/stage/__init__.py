"""Stores of stage state: one suite of contracts, several places to keep it."""
