"""A second product on the same ground: how a fleet of many chips would fare, and sweeps over links and failures."""
