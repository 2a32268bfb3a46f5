"""The home of training: here, so far, the feed that reads curated topics up to a cut."""
