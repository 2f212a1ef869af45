"""`python -m patchq` and the console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line; `patchq.cli` is imported late, so that `--version` costs no more than Python.

    ^C is one line and 130 also while modules are loaded, and while the process ends.
    """
    import os
    import sys

    _open_what_is_closed()
    if sys.argv[1:] == ["--version"]:
        from patchq import __version__

        try:
            os.write(sys.stdout.fileno(), f"patchq {__version__}\n".encode())
            return
        except OSError:  # the command line says the same once more, and what became of it
            pass
    try:
        import signal

        from patchq.cli import run

        code = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        code = 130
    if sys.flags.inspect:  # PYTHONINSPECT: Python would stay, and end with 1
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _open_what_is_closed() -> None:
    """A standard stream that the caller closed leads nowhere; else the next file that is opened takes its number."""
    import os
    import sys

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
