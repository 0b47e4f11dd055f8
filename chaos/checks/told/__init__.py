"""Checks of what workers told of their rounds: their numbers, losses, samples and digests."""
