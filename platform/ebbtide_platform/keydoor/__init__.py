"""The key door: the only process that unwraps keys, its store, its port for page keys, and its fake."""
