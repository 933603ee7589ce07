"""What to do when no connection comes about because of certificates, or because only one side speaks TLS."""

from dataclasses import dataclass

from runekeep.transport.transport import HTTPS, Transport, host_of

# The words of gRPC and of its BoringSSL; tests/unit/runekeep/test_transport.py notices when they change.
_NOT_CONNECTED = ("failed to connect to all addresses", "connections to all backends failing")
_HUNG_UP = ("Socket closed", "Connection reset", "Broken pipe", "Handshake read failed")


@dataclass(frozen=True, slots=True)
class Advice:
    """Why no connection came about and what to do, in sentences. `certain`: trying again will not help."""

    text: str
    certain: bool


def advice(transport: Transport, said: str) -> Advice | None:
    """What to do when `said`, gRPC's words, tell of certificates or of TLS; None when they do not."""
    text = _of_their_certificate(transport, said)
    if text is not None:
        return Advice(text, certain=True)
    if any(words in said for words in _NOT_CONNECTED) and any(words in said for words in _HUNG_UP):
        # Whatever was wrong, TLS 1.3 tells it too late for gRPC to pass it on.
        return Advice(_of_hanging_up(transport), certain=False)
    return None


def _of_their_certificate(transport: Transport, said: str) -> str | None:
    names, target = transport.names, transport.target
    if "CERTIFICATE_VERIFY_FAILED" in said:
        if "certificate has expired" in said:
            return (
                f"The certificate of {target} has expired: its operator must renew it. Is this machine's clock right?"
            )
        if "not yet valid" in said:
            return f"The certificate of {target} is not valid yet. Are the clocks of both machines right?"
        if "purpose" in said:
            return f"The certificate of {target} is not made for servers: its operator must have one made that is."
        trusted = "this system trusts" if transport.ca_file is None else f"{transport.ca_file} holds"
        return (
            f"The certificate of {target} comes from no authority that {trusted}. Name the file with the certificate "
            f"of the server's authority in {names.ca_file}. If it is named already, another server may have answered."
        )
    if "Hostname Verification" in said or "is not in peer certificate" in said:
        return (
            f"The certificate of {target} is for other names than {host_of(target)}. Call the server by a name that "
            f"its certificate holds ({names.address}), or have one made with this name."
        )
    if "WRONG_VERSION_NUMBER" in said:
        return (
            f"{target} does not speak TLS. Switch it on there (RUNEKEEP_TLS__CERTIFICATE); or, for a server on this "
            f"machine, write the address without {HTTPS} and leave {names.ca_file} out."
        )
    return None


def _of_hanging_up(transport: Transport) -> str:
    names, target = transport.names, transport.target
    if not transport.tls:
        return (
            f"{target} hung up at once; it may speak TLS. Then write its address as {HTTPS}{target} "
            f"({names.address}), or name its authority's certificate in {names.ca_file}."
        )
    if transport.cert_file is None:
        return (
            f"{target} hung up in the handshake; it may ask callers for a certificate. Then name yours and its key in "
            f"{names.cert_file} and {names.key_file}."
        )
    return (
        f"{target} hung up in the handshake; it may not take the certificate in {transport.cert_file}. Has it ended, "
        "does it come from an authority that the server trusts, and is it made for clients?"
    )
