"""How containers get their devices: CDI specification, driver files, hook."""
