"""A fault, a check, a report, a backend and a scenario of our own; `nic-brownout.yaml` here joins the library."""
