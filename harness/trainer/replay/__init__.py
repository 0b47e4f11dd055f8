"""Does a recorded run again, and compares it bit for bit."""
