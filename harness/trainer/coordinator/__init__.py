"""The syncer: a state machine without I/O, and what it is made of."""
