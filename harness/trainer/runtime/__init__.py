"""The edges of the trainer: processes, sockets, files and clocks around the cores."""
