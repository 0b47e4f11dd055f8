"""The tape: what every node records while it runs, and the only thing that verdicts are made from.

One file per node and incarnation, `tape/<node>.<incarnation>.jsonl`, one JSON object a line, flushed per event, so
that it can be read after any crash.
"""
