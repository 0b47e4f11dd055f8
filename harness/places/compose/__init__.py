"""Nodes as containers, by docker-compose.yml."""
