"""Every setting of the trainer, and what each mode makes of them."""
