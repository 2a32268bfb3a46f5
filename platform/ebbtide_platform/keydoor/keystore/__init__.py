"""What the key door alone may open: wrapped keys in a database of their own, and the port to the keys over them."""
