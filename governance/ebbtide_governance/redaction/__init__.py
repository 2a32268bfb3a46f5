"""Finds personal data in segments, and renders segments without it.

`scan` says what is in a segment, a `detector` looks, `render` writes placeholders; all three see the same
leaves because `walker` is the only code that takes a segment apart.
"""
