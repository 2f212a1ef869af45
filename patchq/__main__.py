"""`python -m patchq` and the console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line; `patchq.cli` is imported late, so that `--version` costs no more than Python."""
    import sys

    if sys.argv[1:] == ["--version"]:
        from patchq import __version__

        sys.stdout.write(f"patchq {__version__}\n")
        return
    from patchq.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
