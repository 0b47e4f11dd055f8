"""A node's process: carries out, on sockets, files and clocks, what a core without I/O asks for."""
