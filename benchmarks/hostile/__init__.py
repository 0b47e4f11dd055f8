"""Real runs under attack, killed, and on a busy machine."""
