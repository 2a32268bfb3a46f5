"""The read model: what the log says, folded into tables that answer questions."""
