"""How much of a fleet's time is useful training: an event simulation of slices of chips that fail and come back, and
the closed forms beside it. Nothing runs here: what it needs is a description of the fleet, and chance."""
