"""The pytest plugin: scenario files are tests, and a run goes on beside a marked test."""
