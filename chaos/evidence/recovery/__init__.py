"""What followed a fault, beside its phases: what it cost."""
