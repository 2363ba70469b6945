"""A connection that can fall silent, as one that a load balancer has dropped without a word."""

from __future__ import annotations

import contextlib
import socket
import threading


class Link:
    """Passes bytes between clients and a port of this machine.

    While ``silent`` is set it accepts connections and passes nothing on; what was open when it
    fell silent stays silent forever.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        self._silent = threading.Event()
        self._silences = 0
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

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
        """End all connections, as an API server that ends."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End, with nothing left open for a later test to be blamed for."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._open.append(client)
                upstream = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(upstream)
                for source, target in ((client, upstream), (upstream, client)):
                    arguments = (source, target, self._silences)
                    thread = threading.Thread(target=self._pass, args=arguments, daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, source: socket.socket, target: socket.socket, silences: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.silent or silences != self._silences:
                    continue
                target.sendall(data)
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
