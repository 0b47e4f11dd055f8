"""Whole trainings, again and again: what the defaults are chosen from."""
