"""The kubelet's gRPC interfaces; the stubs beside the .proto files are generated at set-up."""
