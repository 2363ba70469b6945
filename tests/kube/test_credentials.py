"""Who asks, and who answers: tokens and authorities, which change while the agent runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from divvy.kube.access import Access
from divvy.kube.async_client import AsyncClient
from divvy.kube.errors import Unreachable
from divvy.lab.certificates import create_authority
from tests.fakes.prepared_answers import answer, serving
from tests.fakes.scene import play


def test_rereads_the_token_for_every_request(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving() as server:
            file = tmp_path / "token"
            client = AsyncClient(Access("127.0.0.1", server.port, token_file=file))
            server.answers = [answer({}), answer({})]
            for token in ("first", "second"):
                file.write_text(f"{token}\n")
                await client.request("GET", "/api")
                assert f"Authorization: Bearer {token}\r\n" in server.heads[-1]
            await client.close()

    play(scene)


@pytest.mark.parametrize("token", ["sec\nret", "secr\u00e9t", "sec\0ret"])
def test_keeps_an_invalid_token_out_of_the_error(token: str) -> None:
    async def scene() -> None:
        async with serving() as server:
            with pytest.raises(Unreachable, match="the token is not one line") as problem:
                await AsyncClient(Access("127.0.0.1", server.port, token=token)).request("GET", "/")
            assert "sec" not in str(problem.value)
            server.answers.clear()

    play(scene)


@pytest.mark.parametrize(("host", "met"), [("127.0.0.1", True), ("10.0.0.1", False)])
def test_verifies_the_servers_certificate(tmp_path: Path, host: str, met: bool) -> None:
    authority = create_authority(tmp_path)
    authority.issue(tmp_path, "server", "api", hosts=[host])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    authority_file = next(tmp_path.glob("ca*.crt"))

    async def scene() -> None:
        async with serving(tls) as server:
            server.answers = [answer({"a": 1})]
            client = AsyncClient(Access("127.0.0.1", server.port, ca_file=authority_file))
            if met:
                assert await client.request("GET", "/api") == {"a": 1}
            else:
                with pytest.raises(Unreachable, match="certificate"):
                    await client.request("GET", "/api")
            await client.close()

    play(scene)


def test_trusts_another_authority_as_soon_as_its_file_changes(tmp_path: Path) -> None:
    """The kubelet writes it while the agent runs, as it does the token."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        create_authority(tmp_path / name).issue(
            tmp_path / name, "server", "api", hosts=["127.0.0.1"]
        )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "new/server.crt", tmp_path / "new/server.key")
    old, new = (next((tmp_path / name).glob("ca*.crt")).read_bytes() for name in ("old", "new"))
    file = tmp_path / "ca.crt"

    async def scene() -> None:
        async with serving(tls) as server:
            client = AsyncClient(Access("127.0.0.1", server.port, ca_file=file))
            for authority in (b"", old):
                file.write_bytes(authority)
                with pytest.raises(Unreachable):
                    await client.request("GET", "/api")
            file.write_bytes(new)
            server.answers = [answer({"a": 1})]
            assert await client.request("GET", "/api") == {"a": 1}
            await client.close()

    play(scene)
