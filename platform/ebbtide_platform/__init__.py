"""The kernel and the doors: errors, settings, topics, ports, sealing, key door, Kafka and the command line."""
