"""The passphrase secrets provider in the official format.

``v1:<salt>:v1:<nonce>:<ciphertext>``: AES-256-GCM under a key of 1,000,000
rounds of PBKDF2-HMAC-SHA256 over the passphrase; the salt line carries the
encrypted word "pulumi" by which a passphrase is checked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from divvy.engine.errors import StateProblem
from divvy.engine.values import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    mapped_secrets,
    secret,
    unwrapped,
)

_ROUNDS = 1_000_000
_WORD = "pulumi"


class Passphrase:
    """Encrypts and decrypts the secrets of one stack; the key is derived when first needed.

    ``salt`` is the stack's salt line, None until a first secret needs one.
    """

    def __init__(self, salt: str | None, read: Callable[[], str | None]) -> None:
        self.salt = salt
        self._read = read
        self._cipher: AESGCM | None = None
        # Two threads with a first secret must not make a salt each.
        self._deriving = threading.Lock()

    def encrypt(self, plain: str) -> str:
        """Return ``v1:<nonce>:<ciphertext>``."""
        return _seal(self._ready(), plain)

    def decrypt(self, sealed: str) -> str:
        """Return what was encrypted; raises StateProblem."""
        return _open(self._ready(), sealed)

    def _ready(self) -> AESGCM:
        with self._deriving:
            if self._cipher is None:
                self._cipher = self._derived()
            return self._cipher

    def _derived(self) -> AESGCM:
        phrase = self._read()
        if phrase is None:
            raise StateProblem(
                "the stack holds secrets: set PULUMI_CONFIG_PASSPHRASE or "
                "PULUMI_CONFIG_PASSPHRASE_FILE (an empty passphrase is a passphrase)"
            )
        if self.salt is None:
            raw = os.urandom(8)
            cipher = _cipher(phrase, raw)
            self.salt = f"v1:{base64.b64encode(raw).decode()}:{_seal(cipher, _WORD)}"
        else:
            version, _, rest = self.salt.partition(":")
            if version != "v1":
                raise StateProblem(f"the stack's salt has the unknown version {version}")
            raw_text, _, check = rest.partition(":")
            try:
                raw = base64.b64decode(raw_text)
            except ValueError:
                raise StateProblem("the stack's salt (encryptionsalt) is damaged") from None
            cipher = _cipher(phrase, raw)
            if _open(cipher, check) != _WORD:
                raise StateProblem("the passphrase is not this stack's")
        return cipher


def _cipher(phrase: str, salt: bytes) -> AESGCM:
    # The environment may hold any bytes.
    text = phrase.encode(errors="surrogateescape")
    return AESGCM(hashlib.pbkdf2_hmac("sha256", text, salt, _ROUNDS, 32))


def _seal(cipher: AESGCM, plain: str) -> str:
    nonce = os.urandom(12)
    sealed = cipher.encrypt(nonce, plain.encode(), None)
    return f"v1:{base64.b64encode(nonce).decode()}:{base64.b64encode(sealed).decode()}"


def _open(cipher: AESGCM, sealed: str) -> str:
    try:
        version, nonce, text = sealed.split(":")
        if version == "v1":
            plain = cipher.decrypt(base64.b64decode(nonce), base64.b64decode(text), None)
            return plain.decode()
    except (ValueError, InvalidTag):
        pass
    raise StateProblem("a secret cannot be decrypted: the passphrase is not this stack's")


def encrypt_config(value: str, salt: str | None) -> tuple[dict[str, str], str | None]:
    """Return a configuration value encrypted, as stack files hold it, and the stack's salt."""
    crypter = Passphrase(salt, lambda: passphrase_from(os.environ))
    return {"secure": crypter.encrypt(value)}, crypter.salt


def opened_texts(text: str, crypter: Passphrase) -> tuple[str, set[str]]:
    """Return a structured configuration value (JSON) with its secrets opened, and these."""
    texts: set[str] = set()

    def open_(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"secure"}:
            plain = crypter.decrypt(str(value["secure"]))
            texts.add(plain)
            return plain
        if isinstance(value, dict):
            return {key: open_(entry) for key, entry in value.items()}
        return [open_(entry) for entry in value] if isinstance(value, list) else value

    return json.dumps(open_(json.loads(text)), separators=(",", ":")), texts


def passphrase_from(environment: Mapping[str, str]) -> str | None:
    """Return the passphrase the environment gives, None without one."""
    if "PULUMI_CONFIG_PASSPHRASE" in environment:
        return environment["PULUMI_CONFIG_PASSPHRASE"]
    file = environment.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise StateProblem(f"PULUMI_CONFIG_PASSPHRASE_FILE={file} cannot be read: {why}") from None


def sealed(value: Any, crypter: Passphrase) -> Any:
    """Return a value with every secret encrypted, as the state file holds it."""

    def encrypted(marked: dict[str, Any]) -> dict[str, str]:
        text = crypter.encrypt(json.dumps(unwrapped(marked["value"]), separators=(",", ":")))
        return {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": text}

    return mapped_secrets(value, encrypted)


def opened(value: Any, crypter: Passphrase) -> Any:
    """Return a value of the state file with every secret decrypted and marked."""
    if isinstance(value, dict):
        if value.get(SIGNATURE_KEY) == SECRET_SIGNATURE:
            if "value" in value:  # nested and already opened with the secret around it
                return secret(opened(value["value"], crypter))
            sealed_text = value.get("ciphertext")
            plain = value["plaintext"] if sealed_text is None else crypter.decrypt(sealed_text)
            # The official engine may have sealed a secret inside a secret.
            return secret(opened(json.loads(plain), crypter))
        return {key: opened(entry, crypter) for key, entry in value.items()}
    if isinstance(value, list):
        return [opened(entry, crypter) for entry in value]
    return value
