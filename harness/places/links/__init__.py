"""A run's links, and what is done to them."""
