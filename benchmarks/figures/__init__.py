"""Which figures of the docs are still those of today: the anchors in the docs, and the digests of behaviour."""
