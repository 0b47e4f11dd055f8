"""The formulas of the papers, on named arrays: no I/O, no state, no torch."""
