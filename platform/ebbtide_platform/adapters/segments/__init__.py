"""Stores of sealed segments: one suite of contracts, several places to keep them."""
