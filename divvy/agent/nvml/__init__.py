"""Discovery and MIG changes through NVML, in a process of its own.

The driver's library lives in a child process, so that a hanging call, a GPU
reset or a driver of another version never touches the agent's sockets to the
kubelet.
"""
