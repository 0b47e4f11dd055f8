"""A small C library, preloaded into commands: it leads connections through links, makes calls on files fail, and main
threads stand."""
