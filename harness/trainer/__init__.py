"""The trainer under test: Decoupled DiLoCo (arXiv 2604.21428) as state machines without I/O, and thin drivers."""
