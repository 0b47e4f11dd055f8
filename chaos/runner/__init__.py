"""Carries a plan out: the cluster, the faults in their time, the baselines, and cleaning up afterwards."""
