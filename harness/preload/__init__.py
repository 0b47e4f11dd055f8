"""A small C library, preloaded into commands: it leads connections through links, makes calls on files fail, main
threads stand, files lose what was not synced, calls of the CUDA runtime fail, and NVML answers to match."""
