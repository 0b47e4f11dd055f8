"""A fault, a check, a report and a scenario of our own. `nic-brownout.yaml` beside this file joins the library."""
