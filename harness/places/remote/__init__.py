"""Places on other machines: an agent of ours starts each node there, and the harness is connected with it."""
