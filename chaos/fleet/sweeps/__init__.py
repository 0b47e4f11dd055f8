"""Many simulated runs that differ in a few settings: what the built-in trainer's modes make of links, deaths, grace."""
