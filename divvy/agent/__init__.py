"""The node program: discovers, partitions and serves GPUs to the kubelet."""
