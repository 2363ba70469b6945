"""Programs and bindings that use a driver, for tests."""
