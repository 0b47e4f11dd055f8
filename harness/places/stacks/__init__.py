"""Where processes of this machine stand that should have ended: for people, in the run's folder."""
