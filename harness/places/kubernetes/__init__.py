"""The cluster on Kubernetes: a pod for each node, in a namespace of the run's own."""
