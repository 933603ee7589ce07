"""Certificates made for one test: an authority, what it signs, and the ways in which a certificate can be wrong."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
DAY = timedelta(days=1)
LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate, with those between it and its root, and its key: both in PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """The two files: `NAME.pem` and `NAME.key`. Each is put in place whole, as what renews certificates does."""
        files = (directory / f"{name}.pem", directory / f"{name}.key")
        for file, text in zip(files, (self.certificate, self.key), strict=True):
            replace(file, text)
        return files


def replace(file: Path, text: bytes) -> None:
    """Put new contents in place of a file in one step: nobody reads half of them."""
    new = file.with_name(file.name + ".new")
    new.write_bytes(text)
    new.rename(file)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    if "@" in name:
        return x509.RFC822Name(name)
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Authority:
    """A certificate authority. What it issues is good for a year, unless it is asked for something else."""

    def __init__(
        self, name: str = "Runekeep test authority", signed_by: "Authority | None" = None, ends: timedelta = 3650 * DAY
    ) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        above = signed_by or self
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(above._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(above._key, hashes.SHA256())
        )
        self.certificate = made.public_bytes(serialization.Encoding.PEM)
        self._chain = b"" if signed_by is None else self.certificate + signed_by._chain

    @classmethod
    def held_by(cls, holder: Pair) -> "Authority":
        """Somebody who signs with a key whose certificate does not allow it, and shows that certificate for a link."""
        made = cls.__new__(cls)
        certificate = x509.load_pem_x509_certificates(holder.certificate)[0]
        key = serialization.load_pem_private_key(holder.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        made._key, made._name, made._chain = key, certificate.subject, holder.certificate
        made.certificate = holder.certificate
        return made

    def issue(
        self,
        *names: str,
        usages: tuple[x509.ObjectIdentifier, ...] = (SERVER, CLIENT),
        starts: timedelta = -DAY,
        ends: timedelta = 365 * DAY,
        key: CertificateIssuerPrivateKeyTypes | None = None,
        common_name: str = "runekeep test",
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> Pair:
        """A certificate for subject alternative names: with `://` a URI, with `@` an e-mail address, else an address
        or a DNS name, or for those given as they are. `starts` and `ends` are counted from now."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + starts)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names:
            alternatives = x509.SubjectAlternativeName(map(_alternative, names))
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        return Pair(made.public_bytes(serialization.Encoding.PEM) + self._chain, _pem(key))

    def write(self, directory: Path, name: str = "ca") -> Path:
        """The authority's certificate as `NAME.pem`."""
        replace(directory / f"{name}.pem", self.certificate)
        return directory / f"{name}.pem"


def self_signed(*names: str) -> Pair:
    """A certificate that only its own key vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(_name("self-signed"))
        .issuer_name(_name("self-signed"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.SubjectAlternativeName(map(_alternative, names)), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(made.public_bytes(serialization.Encoding.PEM), _pem(key))


def weak_key() -> rsa.RSAPrivateKey:
    """An RSA key that is too short to be taken."""
    return rsa.generate_private_key(65537, 1024)
