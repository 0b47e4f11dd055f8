"""How hardware fails: when nodes are lost and back, by a distribution, by a process, or as a trace says."""
