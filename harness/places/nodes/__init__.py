"""A run's nodes: their processes and incarnations, which follow each other."""
