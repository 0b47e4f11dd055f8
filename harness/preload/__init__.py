"""A small C library, preloaded into commands: it leads connections through links, and makes calls on files fail."""
