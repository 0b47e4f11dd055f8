"""Nodes as jobs of Slurm."""
