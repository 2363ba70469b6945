"""A laboratory: a real Kubernetes on one machine, a simulated driver, stand-ins for tests."""
