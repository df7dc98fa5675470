#!/usr/bin/env python3
"""Start runs, look at them, steer them: the command line. `./starter.py --help` tells more."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"


def enter_venv() -> None:
    """Go on in the project's own environment, whoever's Python started this file."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    python = VENV / "bin" / "python"
    try:
        os.execv(python, [str(python), str(HERE / "starter.py"), *sys.argv[1:]])  # noqa: S606
    except FileNotFoundError:
        sys.exit("Nightcrew is not installed yet: run `make install`.")
    except OSError as error:
        sys.exit(
            f"{python} cannot be started: {error.strerror}. Run `make clean install` with a Python that you may use."
        )


if __name__ == "__main__":
    enter_venv()
    from runtime import leave
    from terminal.commands import main

    leave(main(sys.argv[1:]))
