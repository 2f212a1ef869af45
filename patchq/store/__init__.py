"""patchq's own object store and the git that works on it. The only door to git."""

from patchq.store.bundlefile import BundleFile, read_bundle_file, write_bundle_files
from patchq.store.fetch import Source, fetch_commit
from patchq.store.git import Git, require_git
from patchq.store.objects import Store
from patchq.store.trees import Entry, Tree, blob_id, tree_id_of_files

__all__ = [
    "BundleFile",
    "Entry",
    "Git",
    "Source",
    "Store",
    "Tree",
    "blob_id",
    "fetch_commit",
    "read_bundle_file",
    "require_git",
    "tree_id_of_files",
    "write_bundle_files",
]
