"""What happened? A run's folder, and what can be read from the events in it."""
