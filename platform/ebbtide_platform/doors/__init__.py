"""The doors: what comes in is checked, sealed and on disk before it is answered; what goes out is unsealed."""
