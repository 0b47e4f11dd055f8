"""Measurements: `make bench` prints its figures as JSON, `make sweep` chooses the defaults."""
