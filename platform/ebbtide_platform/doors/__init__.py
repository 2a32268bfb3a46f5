"""The doors: what comes in over HTTP is checked, sealed and safe on disk before it is answered; what goes out is unsealed."""
