"""The prediction: what every node will advertise, and what that guarantees."""
