"""What lies in a backup, as it says itself: `manifest.json`, written last, and the places beside it."""

from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from storage.errors import StoreError

MANIFEST = "manifest.json"
DATABASE = "runekeep.db"
BLOBS = "blobs"
"""As in a data directory: a folder an account, in it one a user, in it one for the first two characters of names."""


class BackupInvalid(StoreError):
    """What is there is no backup, no whole one, or a damaged one."""


class File(BaseModel):
    """`bytes` and the SHA-256 in hexadecimal digits of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Blobs(BaseModel):
    """`place`: `backup`, or `object_store` when they are none of this backup's.

    `missing` and `damaged` (`account/user/name`): what was so in the store already. Rows name them, so they are told.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Literal["backup", "object_store"]
    count: int = Field(ge=0)
    bytes: int = Field(ge=0)
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


class Manifest(BaseModel):
    """`revision` and `compatible_from` are those of the store, see storage.migrate. What was done before `snapshot_at`
    is in it; `made_at` is when it was whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    runekeep: str
    revision: str
    compatible_from: str
    snapshot_at: datetime
    made_at: datetime
    database: File
    blobs: Blobs


def read_manifest(backup: Path) -> Manifest:
    """Raises BackupInvalid."""
    try:
        return Manifest.model_validate_json((backup / MANIFEST).read_bytes())
    except OSError as error:
        raise BackupInvalid(f"{backup} is no whole backup: its {MANIFEST} cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise BackupInvalid(
            f"{backup} is damaged, or was made by a release with another format: its {MANIFEST} has"
            f" {error.error_count()} faults"
        ) from error


def digest_of_file(path: Path) -> str:
    """SHA-256 in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
