"""Random pods at an API server and the stock scheduler; an oracle looks at every claim's event."""
