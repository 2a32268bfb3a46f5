"""What stands in the curated topics, and how a decision changes it."""

from ebbtide_streams.curation.change import Curation, Entry, assemble, curate, replay
from ebbtide_streams.curation.index import CuratedIndex
from ebbtide_streams.curation.lane import Lane

__all__ = ["CuratedIndex", "Curation", "Entry", "Lane", "assemble", "curate", "replay"]
