"""Keeps other users of the machine from what is stored: folders have the mode 0700 and files 0600.

A process sets its umask, which covers what SQLite and other libraries create. `make_private` covers what is there
already: it may be older, or changed by whoever mounts a volume.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from storage.errors import DataDirectoryUnusable

LOST_AND_FOUND: Final = "lost+found"
"""What file systems keep in their roots, where a volume of its own is the data directory."""
_OTHERS: Final = 0o077
"""Permissions that nobody but the owner may have."""


def set_private_umask() -> None:
    """Makes all that this process and its children create private. Call it before any file is created."""
    os.umask(_OTHERS)


def make_private(folders: Iterable[Path], files: Iterable[Path] = ()) -> None:
    """Takes permissions of group and others away from `folders`, all that is in them, and `files`; what does not exist
    is left out. Symbolic links inside of folders are not followed.

    A subfolder that is private already is not searched: its content cannot be reached, and a subfolder becomes private
    only after all of its content. So a start takes no time for many blobs.

    Raises DataDirectoryUnusable for what belongs to another user. One exception: a folder of `folders` may belong to
    root if only root and groups of this process may write to it. That is how Kubernetes mounts a volume with an
    `fsGroup`. Others may then list the names in that folder, and reach nothing else.
    """
    roots = [Path(os.path.realpath(folder)) for folder in folders if folder.is_dir()]
    for root in roots:
        for entry in list(os.scandir(root)):
            path = Path(entry.path)
            if entry.name == LOST_AND_FOUND or path in roots:
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.stat(follow_symlinks=False).st_mode & _OTHERS:
                    _close_tree(path)
            elif not entry.is_symlink():
                _close(path)
        _close(root, may_be_mounted=True)
    for file in files:
        _close(Path(os.path.realpath(file)))


def _close_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False, onerror=_raise):
        for name in names:
            if not (path := Path(parent, name)).is_symlink():
                _close(path)
        _close(Path(parent))


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise DataDirectoryUnusable(f"{error.filename}: {error.strerror}") from error


def _close(path: Path, *, may_be_mounted: bool = False) -> None:
    try:
        before = path.stat()
        if not before.st_mode & _OTHERS:
            return
        try:
            path.chmod(stat.S_IMODE(before.st_mode) & ~_OTHERS)
        except PermissionError:
            if may_be_mounted and is_kept_by_root(before):
                return
        after = path.stat()
    except FileNotFoundError:
        # Servers that share a folder of blobs delete some meanwhile.
        return
    except OSError as error:
        raise DataDirectoryUnusable(f"{path}: {error.strerror}") from error
    if after.st_mode & _OTHERS:
        raise DataDirectoryUnusable(
            f"{path} has the mode {stat.S_IMODE(after.st_mode):04o} and belongs to user {after.st_uid}, so that user"
            f" {os.geteuid()} cannot make it private; run chown on it, mount it with that user and without permissions"
            " of others, or name a folder inside of it, which is then made"
        )


def is_kept_by_root(status: os.stat_result) -> bool:
    """Returns whether a folder with that status belongs to root, and only root and groups of this process may write to
    it."""
    if status.st_uid != 0 or status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or status.st_gid in {os.getegid(), *os.getgroups()}
