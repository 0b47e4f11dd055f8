"""Any trainer: what it must bring, and what drives its nodes."""
