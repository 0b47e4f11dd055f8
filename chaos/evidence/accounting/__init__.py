"""What became of every step and token: each step of each fragment has a fate."""
