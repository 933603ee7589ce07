"""The contents of a backup as described by its `manifest.json`, which is written last, and the paths beside it."""

from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runekeep_storage.errors import StoreError

MANIFEST = "manifest.json"
DATABASE = "runekeep.db"
BLOBS = "blobs"
"""As in a data directory: a folder for each account, in it one for each user, in it one for the first two characters of
names."""


class BackupInvalid(StoreError):
    """The folder is not a backup, not a complete one, or a damaged one."""


class File(BaseModel):
    """The size of a file in `bytes`, and its SHA-256 in hexadecimal digits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Blobs(BaseModel):
    """The blobs of a backup. `place`: `backup`, or `object_store` if the backup does not hold them.

    `missing` and `damaged` (`account/user/name`): blobs that were so in the store already. They are listed because rows
    name them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Literal["backup", "object_store"]
    count: int = Field(ge=0)
    bytes: int = Field(ge=0)
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


class Manifest(BaseModel):
    """The manifest of a backup. `revision` and `compatible_from` are those of the store, see
    runekeep_storage.migrations.migrate. The backup holds everything done before `snapshot_at`; `made_at` is when it was
    complete."""

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
    """Returns the manifest of a backup. Raises BackupInvalid."""
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
    """Returns the SHA-256 of a file in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
