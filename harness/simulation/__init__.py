"""The cluster in one process under virtual time: the trainer's own cores, on simulated machines and links."""
