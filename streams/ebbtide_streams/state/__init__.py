"""How stages lay out their state: rows by id, and what is due when."""
