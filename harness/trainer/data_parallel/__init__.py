"""The synchronous baselines: a hub that averages gradients, and its workers."""
