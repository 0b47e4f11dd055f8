"""A small C library, preloaded into commands: it leads connections through links, makes calls on files fail, main
threads stand, and files lose what was not synced."""
