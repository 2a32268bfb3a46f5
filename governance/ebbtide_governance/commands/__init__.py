"""The commands of the governance side; each module holds one ``command``."""
