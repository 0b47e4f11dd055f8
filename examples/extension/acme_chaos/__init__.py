"""A fault, a check, a report, a trainer, two places and scenarios of our own: the files here join the library."""
