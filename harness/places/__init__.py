"""Places where nodes run, behind one interface that knows nothing of training."""
