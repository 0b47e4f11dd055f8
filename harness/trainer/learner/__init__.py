"""A learner: a state machine without I/O."""
