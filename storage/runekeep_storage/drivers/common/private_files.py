"""Keeps stored data from other users of the machine: folders have the mode 0700 and files 0600.

The umask of the process covers new files, including those that SQLite and other libraries create. `make_private` covers
existing files, which may be older or may have been changed when a volume was mounted.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from runekeep_storage.errors import DataDirectoryUnusable

LOST_AND_FOUND: Final = "lost+found"
"""Folder that file systems create in their root, which may be the data directory."""
_OTHERS: Final = 0o077
"""Permission bits of the group and of others."""


def set_private_umask() -> None:
    """Makes all files private that this process and its children create. Call it before any file is created."""
    os.umask(_OTHERS)


def make_private(folders: Iterable[Path], files: Iterable[Path] = (), *, parents: Iterable[Path] = ()) -> None:
    """Removes the permissions of the group and of others from `folders`, everything in them, `files`, and `parents`,
    whose content it leaves alone. Ignores paths that do not exist. Does not follow symbolic links inside the folders.

    Skips subfolders that are already private: others cannot reach their content, and a subfolder becomes private only
    after all of its content is. So many blobs do not delay a start.

    Raises DataDirectoryUnusable for a path that cannot be made private because it belongs to another user. There is one
    exception: a folder of `folders` or `parents` may belong to root if only root and groups of this process may write
    to it. That is how Kubernetes mounts a volume with an `fsGroup`. Others may then list the names in that folder, but
    cannot reach anything else.
    """
    roots = [Path(os.path.realpath(folder)) for folder in folders if folder.is_dir()]
    for root in roots:
        for entry in list(os.scandir(root)):
            path = Path(entry.path)
            if entry.name == LOST_AND_FOUND or path in roots:
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.stat(follow_symlinks=False).st_mode & _OTHERS:
                    _restrict_tree(path)
            elif not entry.is_symlink():
                _restrict(path)
    for root in (*roots, *(Path(os.path.realpath(folder)) for folder in parents)):
        _restrict(root, may_be_mounted=True)
    for file in files:
        _restrict(Path(os.path.realpath(file)))


def _restrict_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False, onerror=_raise_unusable):
        for name in names:
            if not (path := Path(parent, name)).is_symlink():
                _restrict(path)
        _restrict(Path(parent))


def _raise_unusable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise DataDirectoryUnusable(f"{error.filename}: {error.strerror}") from error


def _restrict(path: Path, *, may_be_mounted: bool = False) -> None:
    try:
        before = path.stat()
        if not before.st_mode & _OTHERS:
            return
        try:
            path.chmod(stat.S_IMODE(before.st_mode) & ~_OTHERS)
        except PermissionError:
            if may_be_mounted and is_protected_by_root(before):
                return
        after = path.stat()
    except FileNotFoundError:
        # Another server that shares the folder of blobs has deleted the file meanwhile.
        return
    except OSError as error:
        raise DataDirectoryUnusable(f"{path}: {error.strerror}") from error
    if after.st_mode & _OTHERS:
        raise DataDirectoryUnusable(
            f"{path} has the mode {stat.S_IMODE(after.st_mode):04o} and belongs to user {after.st_uid}, so user"
            f" {os.geteuid()} cannot make it private; run chown on it, mount it with user {os.geteuid()} as its owner"
            " and without permissions for others, or set a folder inside it, which the server creates; move what is"
            " stored here into that folder first"
        )


def is_protected_by_root(status: os.stat_result) -> bool:
    """Returns whether the folder with this status belongs to root, and only root and groups of this process may write
    to it."""
    if status.st_uid != 0 or status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or status.st_gid in {os.getegid(), *os.getgroups()}
