"""The ground: a faithful Decoupled DiLoCo trainer, the places it runs in, and the links between its nodes."""
