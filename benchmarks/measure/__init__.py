"""What `make bench` measures, one module a figure."""
