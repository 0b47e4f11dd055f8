"""What lies on disks, and how it gets there whole or not at all."""
