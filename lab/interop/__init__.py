"""Other implementations of GPU sharing, deployed on a lab and put to Divvy's checks."""
