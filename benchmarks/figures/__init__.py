"""Which figures of the docs are still those of today: the register, the digests of behaviour, the marks."""
