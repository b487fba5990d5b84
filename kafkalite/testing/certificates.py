"""An authority and certificates for tests, made by the machine's openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority of its own in `directory`; EC keys, made in milliseconds.

    Attributes:
        truststore: PEM file: a peer that trusts it trusts what it signs.
    """

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = directory / "authority.key"
        self.truststore = str(directory / "authority.pem")
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", str(self._key), "-out", self.truststore, "-days", "2",
            "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:true",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip

    def issue(
        self,
        name: str,
        *,
        subject: str | None = None,
        hosts: tuple[str, ...] = ("IP:127.0.0.1", "DNS:localhost"),
        is_expired: bool = False,
        password: str = "",
    ) -> str:
        """A keystore: one PEM file with certificate and key, for servers and clients; its path.

        Args:
            subject: "/O=example/CN=alice", general parts first; "/CN={name}" by default.
            hosts: as openssl writes alternative names.
            is_expired: it was valid yesterday.
            password: encrypts the key.
        """
        key, request, certificate, store = (self._directory / f"{name}.{end}" for end in ("key", "csr", "crt", "pem"))
        sealed = ("-passout", f"pass:{password}") if password else ("-nodes",)
        options = [option for option in _NEW_KEY if option != "-nodes"]
        _openssl(
            "req", "-new", *options, *sealed, "-keyout", str(key), "-out", str(request),
            "-subj", subject or f"/CN={name}",
        )  # fmt: skip
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(
            "extendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:false\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"  # Python 3.13 insists
            + (f"subjectAltName={','.join(hosts)}\n" if hosts else "")
        )
        period = ("-not_before", "20200101000000Z", "-not_after", "20200102000000Z") if is_expired else ("-days", "2")
        if is_expired:
            self._sign_expired(request, certificate, extensions, period)
        else:
            _openssl(
                "x509", "-req", "-in", str(request), "-CA", self.truststore, "-CAkey", str(self._key),
                "-out", str(certificate), "-extfile", str(extensions), *period,
            )  # fmt: skip
        store.write_bytes(certificate.read_bytes() + key.read_bytes())
        store.chmod(0o600)
        return str(store)

    def _sign_expired(self, request: Path, certificate: Path, extensions: Path, period: tuple[str, ...]) -> None:
        """Only `openssl ca` takes dates (in every version of openssl)."""
        base = self._directory / "ca"
        base.mkdir(exist_ok=True)
        (base / "index").write_text("")
        (base / "config").write_text(
            f"[ca]\ndefault_ca=this\n[this]\ndatabase={base / 'index'}\nnew_certs_dir={base}\nrand_serial=yes\n"
            "default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
        )
        _openssl(
            "ca", "-batch", "-notext", "-config", str(base / "config"), "-cert", self.truststore, "-keyfile",
            str(self._key), "-in", str(request), "-out", str(certificate), "-extfile", str(extensions),
            "-startdate", period[1], "-enddate", period[3],
        )  # fmt: skip


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-sha256", "-nodes")


def _openssl(*arguments: str) -> None:
    openssl = shutil.which("openssl")
    assert openssl is not None, "these tests need openssl on the machine"
    done = subprocess.run([openssl, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"openssl {arguments[0]}: {done.stderr[-1000:]}"
