"""The home of training: so far the feed, which reads curated topics straight from Kafka."""
