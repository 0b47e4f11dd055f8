"""What everything else stands on: units, errors, registries, processes, the machine."""
