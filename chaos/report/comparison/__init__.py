"""Two ways of doing the same, side by side: which recovers sooner, and whether that is more than chance."""
