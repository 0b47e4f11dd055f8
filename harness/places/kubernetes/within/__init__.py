"""What is preloaded into the processes of pods."""
