"""What nodes say to each other, and what a core asks of its driver."""
