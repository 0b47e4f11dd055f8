"""What is trained, and on which bytes."""
