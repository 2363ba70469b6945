"""A connection that can fall silent, as one that a load balancer has dropped without a word."""

from __future__ import annotations

import contextlib
import socket
import threading


class Link:
    """Passes bytes between clients and a port of this machine.

    While ``silent`` is set it accepts connections and passes nothing on; what was open when it
    fell silent stays silent for ever.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        self._silent = threading.Event()
        self._silences = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def silent(self) -> bool:
        """Return whether nothing passes."""
        return self._silent.is_set()

    @silent.setter
    def silent(self, silent: bool) -> None:
        if silent:
            self._silences += 1
            self._silent.set()
        else:
            self._silent.clear()

    def cut(self) -> None:
        """Close all connections, as an API server that ends."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End."""
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                upstream = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, upstream]
                for source, target in ((client, upstream), (upstream, client)):
                    arguments = (source, target, self._silences)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, silences: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.silent or silences != self._silences:
                    continue
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
