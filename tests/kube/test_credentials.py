"""Who asks, and who answers: tokens and authorities, which change while the agent runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from divvy.kube.access import Access
from divvy.kube.async_client import AsyncClient
from divvy.kube.errors import Unreachable
from lab.cluster.certificates import create_authority
from lab.fakes.prepared_answers import answer, serving


async def test_rereads_the_token_for_every_request(tmp_path: Path) -> None:
    async with serving() as server:
        file = tmp_path / "token"
        client = AsyncClient(Access("127.0.0.1", server.port, token_file=file))
        server.answers = [answer({}), answer({})]
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            await client.request("GET", "/api")
            assert f"Authorization: Bearer {token}\r\n" in server.heads[-1]
        await client.close()


@pytest.mark.parametrize("token", ["sec\nret", "secr\u00e9t", "sec\0ret"])
async def test_keeps_an_invalid_token_out_of_the_error(token: str) -> None:
    async with serving() as server:
        with pytest.raises(Unreachable, match="the token is not one line") as problem:
            await AsyncClient(Access("127.0.0.1", server.port, token=token)).request("GET", "/")
        assert "sec" not in str(problem.value)
        server.answers.clear()


def certified(folder: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    """Return the settings of a server with a certificate for a host, and its authority's file."""
    folder.mkdir(exist_ok=True)
    create_authority(folder).issue(folder, "server", "api", hosts=[host])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    return tls, next(folder.glob("ca*.crt"))


@pytest.mark.parametrize(("host", "met"), [("127.0.0.1", True), ("10.0.0.1", False)])
async def test_verifies_the_servers_certificate(tmp_path: Path, host: str, met: bool) -> None:
    tls, authority_file = certified(tmp_path, host)
    async with serving(tls) as server:
        server.answers = [answer({"a": 1})]
        client = AsyncClient(Access("127.0.0.1", server.port, ca_file=authority_file))
        if met:
            assert await client.request("GET", "/api") == {"a": 1}
        else:
            with pytest.raises(Unreachable, match="certificate"):
                await client.request("GET", "/api")
        await client.close()


async def test_trusts_another_authority_as_soon_as_its_file_changes(tmp_path: Path) -> None:
    """The kubelet writes it while the agent runs, as it does the token."""
    _, old = certified(tmp_path / "old", "127.0.0.1")
    tls, new = certified(tmp_path / "new", "127.0.0.1")
    file = tmp_path / "ca.crt"
    async with serving(tls) as server:
        client = AsyncClient(Access("127.0.0.1", server.port, ca_file=file))
        for authority in (b"", old.read_bytes()):
            file.write_bytes(authority)
            with pytest.raises(Unreachable):
                await client.request("GET", "/api")
        file.write_bytes(new.read_bytes())
        server.answers = [answer({"a": 1})]
        assert await client.request("GET", "/api") == {"a": 1}
        await client.close()
