"""The lab's certificate authority and the identities it gives out."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)


@dataclass(frozen=True)
class Authority:
    """Signs the lab's certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(
        self,
        directory: Path,
        name: str,
        user: str,
        group: str | None = None,
        hosts: Sequence[str] | None = None,
    ) -> None:
        """Write <name>.crt and <name>.key: for a server if hosts are given, else for a client."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        server, client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        usage = client if hosts is None else server
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(x509.Name(attributes), self.certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts is not None:
            names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        write_key(directory / f"{name}.key", key)
        _write_certificate(directory / f"{name}.crt", certificate)


def create_authority(directory: Path) -> Authority:
    """Create an authority and write ca.crt and ca.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "divvy-lab-ca")])
    certificate = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_key(directory / "ca.key", key)
    _write_certificate(directory / "ca.crt", certificate)
    return Authority(certificate, key)


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only root can read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def create_service_account_key(directory: Path) -> None:
    """Write sa.key and sa.pub, with which service-account tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(directory / "sa.key", key)
    (directory / "sa.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clocks of a suspended laptop and its virtual machines differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
