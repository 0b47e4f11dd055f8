"""What a trainer must bring to be put under test, and all that the experiment and its faults know of one."""
