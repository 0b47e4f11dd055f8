"""State machines without I/O: what they are given and asked, and what they ask for."""
