"""What does the YAML mean? From a file to a frozen plan, and every problem on the way."""
