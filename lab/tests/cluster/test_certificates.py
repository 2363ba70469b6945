"""The lab's certificates say what Kubernetes reads from them."""

from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from lab.cluster.certificates import create_authority


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_issues_certificates_for_a_nodes_kubelet_and_a_servers_addresses(tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    authority.issue(tmp_path, "client", "system:node:n", "system:nodes")
    authority.issue(tmp_path, "server", "system:node:n", hosts=["n", "10.0.0.1"])
    client, server = _read(tmp_path / "client.crt"), _read(tmp_path / "server.crt")
    assert client.subject.rfc4514_string() == "CN=system:node:n,O=system:nodes"
    for certificate, usage in (
        (client, ExtendedKeyUsageOID.CLIENT_AUTH),
        (server, ExtendedKeyUsageOID.SERVER_AUTH),
    ):
        certificate.verify_directly_issued_by(authority.certificate)
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usages) == [usage]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["n", "10.0.0.1"]
    assert (tmp_path / "client.key").stat().st_mode & 0o777 == 0o600
