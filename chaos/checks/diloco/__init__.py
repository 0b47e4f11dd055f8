"""Checks of a trainer that merges fragments of a model: the promises of (Decoupled) DiLoCo."""
