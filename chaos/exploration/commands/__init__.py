"""Searches in a trainer of commands, in real time: schedules are drawn from what can be done to its nodes, and guided
by the logs that it writes."""
