"""Servers that stand in for the kubelet, speaking its real protocols over real sockets."""
