"""Tells people: the terminal while a run goes on, the report after it, and several runs side by side."""
